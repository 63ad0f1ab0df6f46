// text.h: what nvrtc.cpp finds in the text of kernels and replaces there.
#pragma once
#include <string>

namespace device {

std::string bare(const std::string &text);  // spaces in the place of comments, strings and preprocessor lines
std::string word_at(const std::string &text, size_t &at);  // the word at or after `at`, which moves to its end
size_t after_parentheses(const std::string &text, size_t at);
std::string without_guarded(const std::string &text, const std::string &guard);
std::string calls_of_instructions(const std::string &text);

}  // namespace device
