// SPDX-License-Identifier: Apache-2.0
#include "model/import/topo_text.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace draftboard::model {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool starts_with(std::string_view text, std::string_view prefix) {
    return text.substr(0, prefix.size()) == prefix;
}

// Removes terminal colours (with or without their ESC), carriage returns, markdown bars and Unicode blanks.
std::string clean_line(std::string_view line) {
    std::string out;
    out.reserve(line.size());
    for (std::size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        const bool escape = c == '\x1b';
        const std::size_t open = escape ? i + 1 : i;
        if ((escape || c == '[') && open < line.size() && line[open] == '[') {
            std::size_t end = open + 1;
            while (end < line.size() && (is_digit(line[end]) || line[end] == ';' || line[end] == '?')) {
                ++end;
            }
            // Without its ESC only the colour command "[...m" is taken for one.
            if (end < line.size() && (escape ? is_alpha(line[end]) : line[end] == 'm')) {
                i = end;
                continue;
            }
        }
        if (escape || c == '\r') {
            continue;
        }
        const std::string_view rest = line.substr(i, 3);
        if (starts_with(rest, "\xC2\xA0")) {  // no-break space
            out += ' ';
            i += 1;
        } else if (starts_with(rest, "\xEF\xBB\xBF")) {  // byte order mark
            i += 2;
        } else if (starts_with(rest, "\xE2\x80\xA6")) {  // ellipsis
            out += "...";
            i += 2;
        } else {
            const bool blank = c == '|' || c == '\v' || c == '\f' || c == '\0' || c == '`';
            out += blank ? ' ' : c;
        }
    }
    return out;
}

std::vector<std::string_view> split_blanks(std::string_view line) {
    std::vector<std::string_view> tokens;
    std::size_t i = 0;
    while (i < line.size()) {
        while (i < line.size() && (line[i] == ' ' || line[i] == '\t')) {
            ++i;
        }
        const std::size_t begin = i;
        while (i < line.size() && line[i] != ' ' && line[i] != '\t') {
            ++i;
        }
        if (i > begin) {
            tokens.push_back(line.substr(begin, i - begin));
        }
    }
    return tokens;
}

std::string trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
        text.remove_prefix(1);
    }
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) {
        text.remove_suffix(1);
    }
    return std::string(text);
}

// "GPU0GPU1mlx5_0" -> GPU0, GPU1, mlx5_0; any other token unchanged.
void push_unglued(std::string_view token, std::vector<std::string>& out) {
    while (starts_with(token, "GPU") && token.size() > 3 && is_digit(token[3])) {
        std::size_t end = 3;
        while (end < token.size() && is_digit(token[end])) {
            ++end;
        }
        out.emplace_back(token.substr(0, end));
        token.remove_prefix(end);
    }
    if (!token.empty()) {
        out.emplace_back(token);
    }
}

// A NIC's column: a name with a digit in it, and no label.
bool is_nic_label(std::string_view token) {
    if (token.empty() || !is_alpha(token[0]) || parse_topo_label(token).kind != TopoLabelKind::other) {
        return false;
    }
    bool digit = false;
    for (const char c : token) {
        if (!is_digit(c) && !is_alpha(c) && c != '_' && c != '-' && c != '.' && c != ':') {
            return false;
        }
        digit = digit || is_digit(c);
    }
    return digit;
}

bool is_heading_word(std::string_view token) {
    static constexpr std::array<std::string_view, 9> kWords = {
        "CPU", "CPUs", "NUMA", "GPU", "Affinity", "ID", "Node", "node(s)", "CPUAffinity"};
    return std::find(kWords.begin(), kWords.end(), token) != kWords.end();
}

bool is_header(const std::vector<std::string>& tokens) {
    return std::all_of(tokens.begin(), tokens.end(), [](const std::string& token) {
        return is_gpu_label(token) || is_nic_label(token) || is_heading_word(token);
    });
}

// Appends header tokens to a block's columns.
void read_columns(const std::vector<std::string>& tokens, TopoBlock& block) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::string& token = tokens[i];
        if (token == "GPU") {
            block.affinities.push_back(TopoColumn::gpu_numa);
            while (i + 1 < tokens.size() && (tokens[i + 1] == "NUMA" || tokens[i + 1] == "ID")) {
                ++i;
            }
        } else if (starts_with(token, "CPU")) {
            block.affinities.push_back(TopoColumn::cpu);
        } else if (token == "NUMA") {
            // A wrapped "GPU | NUMA ID" has its GPU on the line before.
            const bool second = std::find(block.affinities.begin(), block.affinities.end(),
                                          TopoColumn::numa) != block.affinities.end();
            if (!second) {
                block.affinities.push_back(TopoColumn::numa);
            }
        } else if (!is_heading_word(token) && block.affinities.empty() &&
                   block.devices.size() < kMaxTopoColumns) {
            block.devices.push_back(token);
        }
    }
}

bool is_self(std::string_view token) {
    return parse_topo_label(token).kind == TopoLabelKind::self;
}

bool is_affinity_token(std::string_view token) {
    return !token.empty() && (is_digit(token[0]) || starts_with(token, "N/A"));
}

// The host a line is tagged with by pdsh, mpirun and the like ("node1:"); line numbers are none.
std::string host_tag(const std::vector<std::string_view>& tokens, std::size_t count) {
    if (count == 0 || tokens[count - 1].back() != ':' || is_digit(tokens[count - 1].front())) {
        return {};
    }
    return std::string(tokens[count - 1]);
}

constexpr std::array<std::string_view, 8> kFailures = {
    "Failed to run topology matrix", "NVIDIA-SMI has failed",         "Failed to initialize NVML",
    "No devices were found",         "nvidia-smi: command not found", "nvidia-smi: not found",
    "Unable to determine the device handle", "'nvidia-smi' is not recognized"};

class Scanner {
   public:
    void line(std::string_view raw, int number);
    TopoText take() { return std::move(text_); }
    [[nodiscard]] bool full() const { return text_.blocks.size() >= kMaxTopoBlocks; }

   private:
    void header(const std::vector<std::string>& tokens, const std::string& host, int number);
    void row(const std::string& cleaned, const std::vector<std::string_view>& tokens,
             std::size_t label, const std::string& host, int number);
    void continuation(const std::vector<std::string_view>& tokens, int number);
    TopoBlock* block_of(const std::string& host);

    TopoText text_;
    std::unordered_map<std::string, std::size_t> current_;  // host tag -> its open block
    int last_line_ = 0;          // the line before, if it was part of a table
    std::size_t last_block_ = 0;
    bool last_was_header_ = false;
};

TopoBlock* Scanner::block_of(const std::string& host) {
    const auto found = current_.find(host);
    return found == current_.end() ? nullptr : &text_.blocks[found->second];
}

void Scanner::header(const std::vector<std::string>& tokens, const std::string& host, int number) {
    TopoBlock block;
    block.line = number;
    block.has_header = true;
    read_columns(tokens, block);
    text_.blocks.push_back(std::move(block));
    last_block_ = text_.blocks.size() - 1;
    current_[host] = last_block_;
    last_line_ = number;
    last_was_header_ = true;
}

void Scanner::row(const std::string& cleaned, const std::vector<std::string_view>& tokens,
                  std::size_t label, const std::string& host, int number) {
    TopoRow row;
    row.line = number;
    row.label = std::string(tokens[label]);
    for (std::size_t i = label + 1; i < tokens.size() && i < kMaxTopoColumns; ++i) {
        row.tokens.emplace_back(tokens[i]);
    }
    const auto behind = static_cast<std::size_t>(tokens[label].data() - cleaned.data()) +
                        tokens[label].size();
    std::string_view rest = std::string_view(cleaned).substr(behind);
    if (!rest.empty() && rest.front() == '\t') {
        while (!rest.empty() && row.fields.size() < kMaxTopoColumns) {
            rest.remove_prefix(1);
            const std::size_t tab = rest.find('\t');
            row.fields.push_back(trimmed(rest.substr(0, tab)));
            rest = tab == std::string_view::npos ? std::string_view{} : rest.substr(tab);
        }
    }
    TopoBlock* block = block_of(host);
    const bool again = block != nullptr && block->row_of.count(row.label) > 0;
    if (again && block->rows[block->row_of[row.label]].tokens == row.tokens) {
        last_line_ = 0;
        return;  // the same row printed twice
    }
    if (block == nullptr || again) {
        TopoBlock fresh;
        fresh.line = number;
        if (again) {
            fresh.restarted = true;
            fresh.has_header = block->has_header;
            fresh.devices = block->devices;
            fresh.affinities = block->affinities;
        }
        text_.blocks.push_back(std::move(fresh));
        current_[host] = text_.blocks.size() - 1;
        block = &text_.blocks.back();
    }
    if (block->rows.size() >= static_cast<std::size_t>(kMaxGpus)) {
        text_.too_many_rows = true;
        return;
    }
    block->row_of[row.label] = block->rows.size();
    block->rows.push_back(std::move(row));
    last_block_ = static_cast<std::size_t>(block - text_.blocks.data());
    last_line_ = number;
    last_was_header_ = false;
}

// A line that a terminal broke: more columns of a header, or more cells of a row that is short of them.
void Scanner::continuation(const std::vector<std::string_view>& tokens, int number) {
    TopoBlock& block = text_.blocks[last_block_];
    if (last_was_header_) {
        std::vector<std::string> words;
        for (const std::string_view token : tokens) {
            push_unglued(token, words);
        }
        if (is_header(words)) {
            read_columns(words, block);
            last_line_ = number;
        }
        return;
    }
    if (block.rows.empty() || (tokens.size() > 1 && tokens[1] == "=")) {
        return;
    }
    TopoRow& row = block.rows.back();
    const std::size_t wanted = block.devices.size() + block.affinities.size();
    if (row.tokens.size() >= wanted) {
        return;
    }
    std::vector<std::string> words(tokens.begin(), tokens.end());
    const bool nic = std::find(block.devices.begin(), block.devices.end(), words[0]) !=
                     block.devices.end();
    if (nic) {
        return;
    }
    if (row.tokens.size() < block.devices.size() && !row.tokens.empty()) {
        const std::string joined = row.tokens.back() + words[0];
        if (parse_topo_label(row.tokens.back()).kind == TopoLabelKind::cut &&
            parse_topo_label(joined).kind == TopoLabelKind::path) {
            row.tokens.back() = joined;
            words.erase(words.begin());
        }
    }
    for (const std::string& word : words) {
        const TopoLabelKind kind = parse_topo_label(word).kind;
        const bool cell = kind == TopoLabelKind::self || kind == TopoLabelKind::path ||
                          kind == TopoLabelKind::peer;
        const bool fits = row.tokens.size() < block.devices.size() ? cell : is_affinity_token(word);
        if (!fits || row.tokens.size() >= wanted) {
            return;
        }
        row.tokens.push_back(word);
        row.fields.clear();
        last_line_ = number;
    }
}

void Scanner::line(std::string_view raw, int number) {
    if (raw.size() > kMaxTopoLine) {
        return;
    }
    const bool adjacent = last_line_ != 0 && number == last_line_ + 1;
    const bool mentions_gpu = raw.find("GPU") != std::string_view::npos;
    if (!mentions_gpu && !adjacent && text_.failure_line != 0) {
        return;
    }
    const std::string cleaned = clean_line(raw);
    if (text_.failure_line == 0) {
        for (const std::string_view failure : kFailures) {
            if (cleaned.find(failure) != std::string::npos) {
                text_.failure = trimmed(cleaned);
                text_.failure_line = number;
                return;
            }
        }
    }
    if (!mentions_gpu && !adjacent) {
        return;
    }
    const std::vector<std::string_view> tokens = split_blanks(cleaned);
    if (tokens.empty()) {
        return;
    }
    // The label comes first, or behind a few tags (host, time, line number).
    constexpr std::size_t kMaxTags = 3;
    for (std::size_t i = 0; i < tokens.size() && i <= kMaxTags; ++i) {
        std::vector<std::string> words;
        push_unglued(tokens[i], words);
        if (!is_gpu_label(words.front())) {
            continue;
        }
        const std::string host = host_tag(tokens, i);
        const TopoBlock* block = block_of(host);
        const bool known = block != nullptr && block->has_header;
        if (words.size() == 1 && i + 1 == tokens.size() && known) {
            row(cleaned, tokens, i, host, number);  // its cells follow on the next line
            return;
        }
        if (words.size() == 1 && i + 1 < tokens.size()) {
            const TopoLabelKind next = parse_topo_label(tokens[i + 1]).kind;
            const bool vague = next == TopoLabelKind::missing || next == TopoLabelKind::cut;
            if (vague ? known : next != TopoLabelKind::other) {
                row(cleaned, tokens, i, host, number);
                return;
            }
        }
        for (std::size_t k = i + 1; k < tokens.size() && words.size() < kMaxTopoColumns; ++k) {
            push_unglued(tokens[k], words);
        }
        if (is_header(words)) {
            // A wrapped header goes on with further labels before any row.
            const bool more = adjacent && last_was_header_ && known && block->rows.empty() &&
                              block->affinities.empty() &&
                              std::find(block->devices.begin(), block->devices.end(), words[0]) ==
                                  block->devices.end();
            if (more) {
                read_columns(words, text_.blocks[current_[host]]);
                last_line_ = number;
            } else {
                header(words, host, number);
            }
        } else if (known && std::any_of(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                        tokens.end(), is_self) &&
                   std::find(block->devices.begin(), block->devices.end(), tokens[i]) !=
                       block->devices.end()) {
            row(cleaned, tokens, i, host, number);  // an unknown label comes first: an error later
        }
        return;
    }
    if (adjacent) {
        continuation(tokens, number);
    }
}

}  // namespace

bool is_gpu_label(std::string_view token) {
    return starts_with(token, "GPU") && token.size() > 3 && token.size() <= 9 &&
           std::all_of(token.begin() + 3, token.end(), is_digit);
}

TopoLabel parse_topo_label(std::string_view token) {
    std::string upper(token.substr(0, 16));
    for (char& c : upper) {
        c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    struct Named {
        std::string_view name;
        TopoLabelKind kind;
        PathType type;
    };
    static constexpr std::array<Named, 14> kNames = {{
        {"X", TopoLabelKind::self, PathType::self},
        {"PIX", TopoLabelKind::path, PathType::pix},
        {"PXB", TopoLabelKind::path, PathType::pxb},
        {"PHB", TopoLabelKind::path, PathType::phb},
        {"NODE", TopoLabelKind::path, PathType::node},
        {"SYS", TopoLabelKind::path, PathType::sys},
        {"SOC", TopoLabelKind::path, PathType::sys},  // SYS's name before 2018
        {"OK", TopoLabelKind::peer, PathType::disconnected},
        {"CNS", TopoLabelKind::peer, PathType::disconnected},
        {"GNS", TopoLabelKind::peer, PathType::disconnected},
        {"TNS", TopoLabelKind::peer, PathType::disconnected},
        {"NS", TopoLabelKind::peer, PathType::disconnected},
        {"DR", TopoLabelKind::peer, PathType::disconnected},
        {"U", TopoLabelKind::peer, PathType::disconnected},
    }};
    for (const Named& named : kNames) {
        if (upper == named.name) {
            return {named.kind, named.type, 0};
        }
    }
    if (upper.size() > 2 && upper.size() <= 5 && starts_with(upper, "NV") &&
        std::all_of(upper.begin() + 2, upper.end(), is_digit)) {
        const int links = std::stoi(upper.substr(2));
        if (links > 0) {
            return {TopoLabelKind::path, PathType::nvlink, links};
        }
    }
    if (upper == "N/A" || upper == "-" || upper == "?" || starts_with(upper, "...")) {
        return {TopoLabelKind::missing, PathType::disconnected, 0};
    }
    static constexpr std::array<std::string_view, 10> kCut = {"P",  "PI",  "PX", "PH", "N",
                                                              "NO", "NOD", "NV", "S",  "SY"};
    if (std::find(kCut.begin(), kCut.end(), upper) != kCut.end() || upper == "SO") {
        return {TopoLabelKind::cut, PathType::disconnected, 0};
    }
    return {};
}

TopoText scan_topo_text(const std::string& text) {
    Scanner scanner;
    std::size_t begin = 0;
    int number = 0;
    while (begin < text.size() && !scanner.full()) {
        std::size_t end = text.find('\n', begin);
        if (end == std::string::npos) {
            end = text.size();
        }
        scanner.line(std::string_view(text).substr(begin, end - begin), ++number);
        begin = end + 1;
    }
    return scanner.take();
}

}  // namespace draftboard::model
