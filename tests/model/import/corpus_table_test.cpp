// SPDX-License-Identifier: Apache-2.0
// Every topology of the shared corpus is read into a sound machine or refused in full. The table is
// what each of them holds: number of GPUs (0: refused) and the path types between them, as their
// sources show them. Waived where the corpus is absent.

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/model/import/fixture.h"

namespace draftboard::model {
namespace {

struct Row {
    const char* file;
    int gpus;  ///< 0: refused
    const char* paths;
};

constexpr Row kRows[] = {
    {"topo/003.txt", 8, "PHB SYS"},
    {"topo/005.txt", 8, "PIX NODE"},
    {"topo/007.txt", 2, "NV"},
    {"topo/008.txt", 2, "PHB"},
    {"topo/009.txt", 8, "NV"},
    {"topo/010.txt", 8, "NV"},
    {"topo/011.txt", 0, ""},
    {"topo/013.txt", 8, "NV"},
    {"topo/016.txt", 4, "PHB"},
    {"topo/018.txt", 5, "PHB"},
    {"topo/019.txt", 6, "PIX NODE SYS"},
    {"topo/020.txt", 8, "PIX PXB"},
    {"topo/022.txt", 2, "PIX"},
    {"topo/023.txt", 8, "PIX PHB SYS"},
    {"topo/024.txt", 8, "PIX PHB SYS"},
    {"topo/025.txt", 4, "PIX PHB"},
    {"topo/027.txt", 8, "NODE SYS"},
    {"topo/028.txt", 8, "NODE SYS"},
    {"topo/029.txt", 8, "NODE SYS"},
    {"topo/030.txt", 8, "PIX PHB SYS"},
    {"topo/033.txt", 1, ""},
    {"topo/034.txt", 8, "PIX PXB SYS"},
    {"topo/035.txt", 8, "NV SYS"},
    {"topo/036.txt", 4, "PHB SYS"},
    {"topo/037.txt", 4, "PIX SYS"},
    {"topo/038.txt", 4, "NV SYS"},
    {"topo/039.txt", 8, "SYS"},
    {"topo/040.txt", 8, "SYS"},
    {"topo/041.txt", 8, "SYS"},
    {"topo/042.txt", 8, "NV"},
    {"topo/044.txt", 2, "SYS"},
    {"topo/045.txt", 2, "SYS"},
    {"topo/046.txt", 0, ""},
    {"topo/051.txt", 4, "NV"},
    {"topo/052.txt", 2, "NV"},
    {"topo/056.txt", 0, ""},
    {"topo/059.txt", 8, "NV"},
    {"topo/060.txt", 8, "NV"},
    {"topo/063.txt", 0, ""},
    {"topo/064.txt", 8, "PIX NODE SYS"},
    {"topo/065.txt", 7, "PIX PHB"},
    {"topo/067.txt", 8, "NODE SYS"},
    {"ncclxml/002.txt", 8, "NODE SYS"},
    {"ncclxml/003.txt", 8, "PIX SYS"},
    {"ncclxml/004.txt", 8, "NODE SYS"},
    {"ncclxml/007.txt", 8, "PIX NODE SYS"},
    {"ncclxml/011.txt", 8, "NV"},
    {"ncclxml/012.txt", 8, "NV"},
    {"ncclxml/013.txt", 8, "PIX SYS"},
    {"ncclxml/014.txt", 8, "PIX SYS"},
    {"ncclxml/015.txt", 16, "NV PXB SYS"},
    {"ncclxml/016.txt", 16, "NV NODE SYS"},
    {"ncclxml/017.txt", 3, "NODE SYS"},
    {"ncclxml/020.txt", 4, "NV SYS"},
    {"ncclxml/021.txt", 8, "NV PXB NODE"},
    {"ncclxml/022.txt", 8, "NV PXB NODE"},
    {"ncclxml/023.txt", 8, "NV PXB NODE"},
    {"ncclxml/025.txt", 8, "NV SYS"},
    {"ncclxml/027.txt", 8, "NV NODE SYS"},
    {"ncclxml/028.txt", 8, "NV SYS"},
    {"ncclxml/029.txt", 8, "NV NODE SYS"},
    {"ncclxml/030.txt", 16, "NV PIX NODE"},
    {"ncclxml/031.txt", 4, "NV"},
    {"ncclxml/032.txt", 8, "NV PXB SYS"},
    {"ncclxml/036.txt", 8, "NV NODE SYS"},
    {"ncclxml/037.txt", 8, "NV NODE SYS"},
    {"ncclxml/038.txt", 8, "NV PXB SYS"},
    {"ncclxml/040.txt", 8, "NV SYS"},
    {"ncclxml/043.txt", 8, "NV SYS"},
    {"ncclxml/044.txt", 8, "NV SYS"},
    {"ncclxml/046.txt", 8, "NV SYS"},
    {"ncclxml/047.txt", 8, "NV NODE"},
    {"ncclxml/048.txt", 8, "NV NODE SYS"},
    {"ncclxml/050.txt", 8, "NV"},
    {"ncclxml/051.txt", 8, "PXB NODE"},
    {"ncclxml/053.txt", 8, "PXB NODE"},
    {"ncclxml/056.txt", 8, "NV SYS"},
    {"ncclxml/057.txt", 8, "NV NODE SYS"},
    {"ncclxml/058.txt", 8, "NV NODE SYS"},
    {"ncclxml/059.txt", 8, "NV NODE SYS"},
    {"ncclxml/060.txt", 8, "NV NODE SYS"},
    {"ncclxml/061.txt", 8, "NV SYS"},
    {"ncclxml/062.txt", 8, "NODE SYS"},
    {"ncclxml/065.txt", 8, "NV NODE SYS"},
    {"ncclxml/066.txt", 8, "NV NODE SYS"},
    {"ncclxml/067.txt", 8, "NV NODE SYS"},
    {"ncclxml/068.txt", 8, "NV NODE SYS"},
    {"ncclxml/069.txt", 8, "NV SYS"},
    {"ncclxml/072.txt", 0, ""},
    {"lstopo/004.txt", 0, ""},
    {"lstopo/005.txt", 0, ""},
    {"lstopo/006.txt", 0, ""},
    {"lstopo/007.txt", 0, ""},
    {"lstopo/010.txt", 0, ""},
    {"lstopo/012.txt", 1, ""},
    {"lstopo/013.txt", 1, ""},
    {"lstopo/016.txt", 2, "SYS"},
    {"lstopo/017.txt", 16, "NV"},
};

std::filesystem::path corpus() {
    const char* chosen = std::getenv("DRAFTBOARD_SHARED_DIR");
    return std::filesystem::path(chosen != nullptr ? chosen : DRAFTBOARD_SHARED_DIR) / "corpus";
}

std::string path_types(const Machine& machine) {
    const Router router(machine);
    std::set<PathType> seen;
    for (int a = 0; a < router.gpu_count(); ++a) {
        for (int b = a + 1; b < router.gpu_count(); ++b) {
            seen.insert(router.nvlinks(a, b) > 0 ? PathType::nvlink : router.path_type(a, b));
        }
    }
    std::string text;
    for (const PathType type : seen) {
        text.append(text.empty() ? 0 : 1, ' ').append(to_name(type));
    }
    return text;
}

Expected<ImportedMachine> import_file(const std::filesystem::path& path, const std::string& name) {
    return import_machine(read_file(path).value_or(std::string()), name);
}

TEST(CorpusTable, Known_files_give_the_GPUs_and_paths_that_they_show) {
    if (!std::filesystem::exists(corpus())) {
        GTEST_SKIP() << "no shared corpus";
    }
    for (const Row& row : kRows) {
        SCOPED_TRACE(row.file);
        if (!std::filesystem::exists(corpus() / row.file)) {
            continue;
        }
        const auto machine = import_file(corpus() / row.file, row.file);
        if (row.gpus == 0) {
            ASSERT_FALSE(machine.has_value());
            expect_complete(machine.error());
            continue;
        }
        ASSERT_TRUE(machine.has_value()) << machine.error().to_text();
        EXPECT_EQ(static_cast<int>(machine->machine.gpus().size()), row.gpus);
        EXPECT_EQ(path_types(machine->machine), row.paths);
    }
}

TEST(CorpusTable, Every_file_is_sound_or_refused_and_measurements_are_never_machines) {
    if (!std::filesystem::exists(corpus())) {
        GTEST_SKIP() << "no shared corpus";
    }
    int seen = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(corpus())) {
        if (!entry.is_regular_file() || entry.path().extension() != ".txt") {
            continue;
        }
        ++seen;
        const std::string kind = entry.path().parent_path().filename();
        SCOPED_TRACE(entry.path());
        const auto machine = import_file(entry.path(), entry.path().filename());
        if (!machine.has_value()) {
            expect_complete(machine.error());
            continue;
        }
        EXPECT_TRUE(kind == "topo" || kind == "ncclxml" || kind == "lstopo");
        EXPECT_TRUE(machine->machine.validate().empty());
        EXPECT_GT(machine->machine.gpus().size(), 0U);
    }
    EXPECT_GT(seen, 50);
}

}  // namespace
}  // namespace draftboard::model
