-- tokenizer: the files from which transformers makes the tokenizer of a model: of the vocabulary that --vocab names, or
-- of the letters of a text that the model was trained on, one token for each byte.
local bytes = require "command.byte_names"
local diag = require "base.diag"
local lines = require "base.lines"
local ordered = require "base.ordered"

local tokenizer = {}

local function read(path)
    local text, message = host.read(path)
    if not text then diag.fail(path, (message:gsub("^.-: ", "", 1)), {}) end
    return text
end

-- The settings that every tokenizer has.
local function settings(class, form, more)
    return host.json(ordered.copy({ tokenizer_class = class, model_max_length = form.context }, more or {})) .. "\n"
end

--- The names of the tokens of a text's bytes by id from 0 (byte_names.lua), or nil if the data are no text.
function tokenizer.letters(m)
    if m.c.data.kind ~= "text" then return nil end
    local names = bytes()
    return ordered.collect({ m.c.data.sources[1].vocabulary:byte(1, -1) }, function(byte) return names[byte] end)
end

-- Byte pairs without any pair: each byte is a token.
local function of_letters(list, form, names)
    local vocab = {}
    for id, name in ipairs(names) do vocab[name] = id - 1 end
    list:set("tokenizer.json", host.json {
        version = "1.0", added_tokens = setmetatable({}, { array = true }),
        pre_tokenizer = { type = "ByteLevel", add_prefix_space = false, trim_offsets = true, use_regex = false },
        decoder = { type = "ByteLevel", add_prefix_space = false, trim_offsets = true, use_regex = false },
        model = { type = "BPE", vocab = vocab, merges = setmetatable({}, { array = true }), fuse_unk = false,
            byte_fallback = false } } .. "\n")
    list:set("tokenizer_config.json", settings("PreTrainedTokenizerFast", form))
end

local END_OF_TEXT = "<|endoftext|>"

local function of_byte_pairs(list, ids, form, folder)
    local gpt2 = require "command.tokenize_gpt2"
    local names, merges = gpt2.files(folder)
    list:set("vocab.json", read(names))
    list:set("merges.txt", read(merges))
    list:set("tokenizer_config.json", settings("GPT2Tokenizer", form, { bos_token = END_OF_TEXT,
        eos_token = END_OF_TEXT, unk_token = END_OF_TEXT }))
    local id = gpt2.ids(names)[END_OF_TEXT]
    ids.bos_token_id, ids.eos_token_id = id, id
end

local NORMAL, UNUSED = 1, 5       -- kinds of tokens of GGUF

-- The names of all tokens by place, from byte pairs; ids without a token are filled up.
local function named_tokens(ids, count)
    local names, kinds = {}, {}
    for id = 0, count - 1 do names[id + 1], kinds[id + 1] = ("[UNUSED%d]"):format(id), UNUSED end
    for name, id in ordered.each(ids) do
        if id < count then names[id + 1], kinds[id + 1] = name, NORMAL end
    end
    return names, kinds
end

--- Adds the facts of the tokenizer of the model m with this form to those of a GGUF file. Returns a text for people.
function tokenizer.gguf(m, form, vocab, facts)
    local letters, rows, merges, ids = tokenizer.letters(m), form.wte.shape[1], {}, {}
    local function add(name, kind, value) facts[#facts + 1] = { "tokenizer.ggml." .. name, kind, value } end
    if vocab and m.c.data.kind ~= "tokens" then
        diag.fail("export", "--vocab: the model was not trained on ids of a vocabulary", {})
    elseif vocab then
        local gpt2 = require "command.tokenize_gpt2"
        local names, path = gpt2.files(vocab)
        ids = gpt2.ids(names)
        merges = ordered.collect(lines.split(read(path)), function(line)
            return line ~= "" and not line:find "^#version" and line or nil
        end)
    elseif letters then
        for i, name in ipairs(letters) do ids[name] = i - 1 end
    else
        add("model", "text", "no_vocab")
        return "no tokenizer: --vocab names its vocabulary"
    end
    local names, kinds = named_tokens(ids, rows)
    add("model", "text", "gpt2")
    add("pre", "text", "gpt-2")
    add("tokens", "text", names)
    add("token_type", "i32", kinds)
    add("merges", "text", merges)
    local last = ids[END_OF_TEXT]
    if last then
        add("bos_token_id", "u32", last)
        add("eos_token_id", "u32", last)
    end
    return "its tokenizer"
end

--- The files of the tokenizer of the model m with this form, for transformers. vocab: the option --vocab, or nil.
--- Returns { list = ordered map from name to bytes, ids = fields of config.json, said = a text for people }.
function tokenizer.hf(m, form, vocab)
    local list, ids, names = ordered.map(), {}, tokenizer.letters(m)
    local said = "its tokenizer"
    if vocab and form.name == "bert" then
        list:set("vocab.txt", read(vocab))
        list:set("tokenizer_config.json", settings("BertTokenizer", form, { do_lower_case = true }))
    elseif vocab and m.c.data.kind == "tokens" then
        of_byte_pairs(list, ids, form, vocab)
    elseif vocab then
        diag.fail("export", "--vocab: the model was not trained on ids of a vocabulary", {})
    elseif names then
        of_letters(list, form, names)
    else
        said = "no tokenizer: --vocab names its vocabulary"
    end
    return { list = list, ids = ids, said = said }
end

return tokenizer
