// SPDX-License-Identifier: Apache-2.0
// The module libdraftboard_mpi.so: a gang of processes over MPI. Loaded by gang.cpp where mpirun started the program.

#include <mpi.h>

#include <cstdlib>

#include "planning/gang.h"

namespace draftboard::planning {

namespace {

constexpr int kTag = 1;

class MpiGang final : public Gang {
 public:
    MpiGang() {
        int provided = 0;
        // Workers are threads of their own and never call MPI.
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
        MPI_Comm_size(MPI_COMM_WORLD, &size_);
        MPI_Comm here = MPI_COMM_NULL;
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &here);
        MPI_Comm_size(here, &size_here_);
        MPI_Comm_free(&here);
    }
    ~MpiGang() override { MPI_Finalize(); }

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return size_; }
    [[nodiscard]] int size_here() const override { return size_here_; }

    void broadcast(std::string& text) override {
        unsigned long long bytes = text.size();
        MPI_Bcast(&bytes, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
        text.resize(bytes);
        constexpr unsigned long long kPart = 1ULL << 30;  // a count is an int
        for (unsigned long long at = 0; at < bytes; at += kPart) {
            const unsigned long long part = bytes - at < kPart ? bytes - at : kPart;
            MPI_Bcast(text.data() + at, static_cast<int>(part), MPI_BYTE, 0, MPI_COMM_WORLD);
        }
    }

    [[nodiscard]] bool all_agree(bool mine) override {
        int in = mine ? 1 : 0;
        int out = 0;
        MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
        return out != 0;
    }

    void send(const std::string& text) override {
        MPI_Send(text.data(), static_cast<int>(text.size()), MPI_BYTE, 0, kTag, MPI_COMM_WORLD);
    }

    [[nodiscard]] std::optional<std::string> receive() override {
        int arrived = 0;
        MPI_Status status;
        MPI_Iprobe(MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &arrived, &status);
        if (arrived == 0) return std::nullopt;
        int bytes = 0;
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        std::string text(static_cast<std::size_t>(bytes), '\0');
        MPI_Recv(text.data(), bytes, MPI_BYTE, status.MPI_SOURCE, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return text;
    }

    [[noreturn]] void abort(int exit_code) override {
        MPI_Abort(MPI_COMM_WORLD, exit_code);
        std::_Exit(exit_code);
    }

 private:
    int rank_ = 0;
    int size_ = 1;
    int size_here_ = 1;
};

}  // namespace

}  // namespace draftboard::planning

extern "C" draftboard::planning::Gang* draftboard_join_gang() { return new draftboard::planning::MpiGang; }
