// text.cpp: words and parentheses of the text of kernels, and calls in the place of inline PTX.
#include "text.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace device {

// The end of the comment, string or preprocessor line that starts at `at`; `at` if none starts there.
static size_t end_of_aside(const std::string &text, size_t at, bool line_start) {
    size_t end = at;
    if (!text.compare(at, 2, "//"))
        end = text.find('\n', at);
    else if (!text.compare(at, 2, "/*"))
        end = text.find("*/", at + 2) + 2;
    else if (line_start && text[at] == '#')
        do end = text.find('\n', end + 1);
        while (end != std::string::npos && text[end - 1] == '\\');
    else if (text[at] == '"' || text[at] == '\'')
        for (end = at + 1; end < text.size() && text[end] != text[at]; end++)
            end += text[end] == '\\';
    if (end > at && (text[at] == '"' || text[at] == '\'')) end++;  // the closing one
    return std::min(end, text.size());
}

std::string bare(const std::string &text) {
    std::string out = text;
    bool line_start = true;
    for (size_t i = 0; i < out.size(); i++) {
        size_t end = end_of_aside(text, i, line_start);
        for (; i < end; i++)
            if (out[i] != '\n') out[i] = ' ';
        line_start =
            i < out.size() && (out[i] == '\n' || (line_start && isspace((unsigned char)out[i])));
    }
    return out;
}

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

std::string word_at(const std::string &text, size_t &at) {
    while (at < text.size() && !is_word(text[at])) at++;
    size_t begin = at;
    while (at < text.size() && is_word(text[at])) at++;
    return text.substr(begin, at - begin);
}

size_t after_parentheses(const std::string &text, size_t at) {
    int depth = 0;
    for (; at < text.size(); at++) {
        depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
        if (depth == 0 && text[at] == ')') return at + 1;
    }
    return at;
}

// The parts of text[from, end) between separators outside of parentheses, brackets and strings; `blank` is the text
// with spaces in the place of strings.
static std::vector<std::string> parts_of(const std::string &text, const std::string &blank, size_t from, size_t end,
                                         char separator) {
    std::vector<std::string> parts;
    int depth = 0;
    for (size_t at = from; at <= end; at++) {
        const char c = at < end ? blank[at] : separator;
        depth += c == '(' || c == '[' || c == '{' ? 1 : c == ')' || c == ']' || c == '}' ? -1 : 0;
        if (c != separator || (depth != 0 && at < end)) continue;
        parts.push_back(text.substr(from, at - from));
        from = at + 1;
    }
    return parts;
}

// The characters of the string literals in a text, one behind the other.
static std::string literals_in(const std::string &text) {
    std::string out;
    bool inside = false;
    for (char c : text)
        if (c == '"')
            inside = !inside;
        else if (inside)
            out += c;
    return out;
}

// The expressions of operands such as "=r"(d), "f"(high).
static void add_operands(const std::string &list, std::vector<std::string> &out) {
    const std::string blank = bare(list);
    for (const std::string &operand : parts_of(list, blank, 0, list.size(), ',')) {
        const size_t open = bare(operand).find('(');
        if (open != std::string::npos) out.push_back(operand.substr(open, after_parentheses(operand, open) - open));
    }
}

// The call for one instruction with operands %0, %1, ...: its name has _ for each dot and colon and its arguments stand
// in the order of the instruction; empty if it has another form.
static std::string call_of(const std::string &instruction, const std::vector<std::string> &operands) {
    const size_t end = instruction.size(), blank = std::min(instruction.find(' '), end);
    std::string call = "ptx_" + instruction.substr(0, blank) + "(";
    for (char &c : call)
        if (c == '.' || c == ':') c = '_';
    for (size_t at = blank; at < end; at++) {
        const char c = instruction[at];
        if (c == '%') {
            size_t number = 0;
            while (at + 1 < end && isdigit((unsigned char)instruction[at + 1]))
                number = number * 10 + (size_t)(instruction[++at] - '0');
            if (number >= operands.size()) return "";
            call += operands[number];
        } else if (c != '{' && c != '}' && c != '[' && c != ']') {
            call += c;
        }
    }
    return call + ");";
}

// The calls for the instructions of an asm: one, or several in braces, with predicates of their own.
//   { .reg .pred p; setp.ne.b32 p, %0, 0; }     ->     { bool p; ptx_setp_ne_b32( p, (x), 0); }
static std::string calls_of(const std::string &instructions, const std::vector<std::string> &operands) {
    static const std::string PREDICATE = ".reg .pred ";
    const size_t first = instructions.find_first_not_of(' '), last = instructions.find_last_not_of(' ');
    if (first == std::string::npos) return "";
    const bool many = instructions[first] == '{';
    const std::string text = many ? instructions.substr(first + 1, last - first - 1) : instructions;
    std::string out;
    int count = 0;
    for (size_t from = 0, end; (end = text.find(';', from)) != std::string::npos; from = end + 1, count++) {
        const size_t begin = std::min(text.find_first_not_of(' ', from), end);
        const std::string one = text.substr(begin, end - begin);
        const bool declares = !one.compare(0, PREDICATE.size(), PREDICATE);
        const std::string call = declares ? "bool " + one.substr(PREDICATE.size()) + ";" : call_of(one, operands);
        if (call.empty()) return "";
        out += (many ? " " : "") + call;
    }
    if (text.find_first_not_of("; ", std::min(text.rfind(';'), text.size() - 1)) != std::string::npos) return "";
    return many ? "{" + out + " }" : count == 1 ? out : "";
}

// The text with spaces in the place of what is for the architecture `guard` alone: between #ifdef guard and #endif.
std::string without_guarded(const std::string &text, const std::string &guard) {
    std::string out = text;
    const std::string begin = "#ifdef " + guard + "\n", end = "\n#endif";
    for (size_t at = 0; (at = out.find(begin, at)) != std::string::npos;) {
        const size_t to = std::min(out.find(end, at), out.size());
        for (; at < to; at++)
            if (out[at] != '\n') out[at] = ' ';
    }
    return out;
}

// Inline PTX becomes calls of the functions of ptx.h, in the lines where it stood:
//   asm volatile("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));     ->     ptx_ex2_approx_f32( (y), (x));
// A call of an instruction that ptx.h does not have does not compile. An asm without one only keeps a compiler's order.
std::string calls_of_instructions(const std::string &text) {
    const std::string blank = bare(text);
    std::string out;
    size_t done = 0;
    for (size_t at = 0; at < blank.size();) {
        const std::string word = word_at(blank, at);
        if (word != "asm") continue;
        const size_t begin = at - 3, open = blank.find('(', at);
        if (open == std::string::npos) break;
        at = after_parentheses(blank, open);
        const std::vector<std::string> sections = parts_of(text, blank, open + 1, at - 1, ':');
        std::vector<std::string> operands;
        for (size_t i = 1; i < sections.size() && i < 3; i++) add_operands(sections[i], operands);
        const std::string instructions = literals_in(sections[0]);
        const std::string call = instructions.empty() ? ";" : calls_of(instructions, operands);
        if (call.empty()) continue;
        const size_t end = blank.find(';', at) + 1;
        out += text.substr(done, begin - done) + call;
        out += std::string((size_t)std::count(text.begin() + (long)begin, text.begin() + (long)end, '\n'), '\n');
        done = end;
    }
    return out + text.substr(done);
}

}  // namespace device
