"""Writes the ids of the package `tokenizers` (Hugging Face) that tests/lua/test_tokenize.lua compares with.

    token_ids.py DATA       DATA holds sst2/dev.tsv, bert/bert-base-uncased-vocab.txt and gpt2bpe

tokens/hard_lines.txt  100 lines that are easy to get wrong, one text in each
tokens/hard_bert.txt   their ids as uncased BERT has them, without [CLS] and [SEP]
tokens/hard_gpt2.txt   their ids as GPT-2 has them
tokens/sst2_dev.txt    the ids of SST-2's 872 sentences of dev.tsv, as in hard_bert.txt
tokens/pairs.txt       ids, token types and mask of pairs of neighbouring hard lines, cut to 16
A line of ids is a line of text. Made with tokenizers 0.23.3.
"""
import pathlib
import sys

from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer

OUT = pathlib.Path(__file__).resolve().parent / "tokens"

LINES = [
    "The movie was n't bad , it 's rather good !", "", " ", "   leading and trailing   ", "a", "[SEP]",
    "[CLS] first [SEP] second [MASK] [PAD] [UNK]", "[sep] [Mask] [[MASK]] [MASK]ed x[SEP]y [SEP", "[FOO] [ SEP ]",
    "café résumé naïve Ångström fiancée", "cafe\u0301 re\u0301sume\u0301 nai\u0308ve A\u030angstro\u0308m",
    "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞß", "ĀĂĄĆĈĊČĎĐĒĔĖĘĚĜĞĠĢĤĦĨĪĬĮİĲĴĶĹĻĽĿŁŃŅŇŊŌŎŐŒŔŖŘŚŜŞŠŢŤŦŨŪŬŮŰŲŴŶŸŹŻŽ",
    "İstanbul Iğdır ılık DİYARBAKIR", "ǅ ǈ ǋ ǲ Ǆ ǆ", "ΑΒΓΔ Ὀδυσσεύς ᾼ ΐ ΰ ΣΊΣΥΦΟΣ Σ",
    "ẞ STRASSE Straße", "Привет, как дела? ЁЖИК Й й Ї", "שלום עולם שָׁלוֹם", "مرحبا بالعالم مُحَمَّد", "हिन्दी में लिखा हुआ",
    "ภาษาไทย ไม่มีช่องว่าง", "ফু কা কি কী", "தமிழ் மொழி", "አማርኛ ፡ ጽሑፍ ።", "ქართული ᲐᲑᲒ Ⴀ", "Ꭰ Ꭱ ꭰ ꭱ ᏸ",
    "中文字符测试", "我喜欢movies很多", "漢字かな交じり文、カタカナ。", "ガギグ がぎぐ カ\u3099 か\u3099", "한국어 텍스트 각 갂 힣",
    "\u1112\u1161\u11ab\u1100\u1173\u11af", "\u3400\u4dbf\u9fff\uf900\ufaff", "\U00020000\U0002a6df\U0002b820\U0002b91f\U0002b920\U0002ceaf\U0002f800",
    "Ｆｕｌｌｗｉｄｔｈ　ＡＢＣ１２３！", "½ ¼ ² ³ ① Ⅷ ⅷ ㎏ ﬁ ﬂ", "K Å Ω ℃ ℉ № ™", "😀 😃👍🏽 👨‍👩‍👧‍👦 🇺🇸 ❤️", "a😀b", "🤖🦾 new emoji 🫠🫡",
    "zero\u200bwidth\u200cjoin\u200dfeff\ufeff end", "soft\u00adhyphen", "left\u200eright\u200f\u202aembed\u202c\u2066iso\u2069",
    "nul\u0000byte", "bell\u0007 tab\u000bvt ff\u000cnext", "esc\u001b[31mred\u001b[0m del\u007f", "c1\u0080\u0085\u009f",
    "car\rriage return", "fs\u001c gs\u001d rs\u001e us\u001f", "replacement\ufffd char \ufffd", "\ufffe\uffff noncharacters",
    "private \ue000\uf8ff\U000f0000\U0010fffd", "tags \U000e0001\U000e0041", "variation \ufe0f\ufe00\U000e0100",
    "nbsp\u00a0here thin\u2009space ideographic\u3000space", "line\u2028sep para\u2029sep nel", "ogham\u1680space mvs\u180espace",
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u200a\u202f\u205f", "don't DON'T we're we'll I'd you've I'm it's 'tis o'clock",
    "\u2018single\u2019 \u201cdouble\u201d \u00abguillemets\u00bb \u2039\u203a", "a\u2013b\u2014c\u2212d\u2010e\u2011f",
    "ellipsis\u2026 dots... .... a.b.c", "price $5.99 \u20ac10 \u00a320 \u00a5300 \u20b9", "50% 3+4=7 2*3 6/2 1<2>0 ~a ^b `c |d",
    "e-mail: some.body+tag@example.co.uk http://x.y/z?a=b&c=d#e", "under_score CamelCase snake_case_name", "C++ C# F# .NET",
    "!!!???...;;;:::", "\"'`()[]{}<>/\\|@#$%^&*-_=+~", "\u00a1hola! \u00bfqu\u00e9 tal?", "\u3001\u3002\uff01\uff1f\u30fb\u300c\u300d",
    "\u2030 \u2031 \u2032 \u2033 \u203b \u203c \u2042 \u2e3a", "\u166d \u1400 \u0589 \u05be \u060c \u061b \u06d4 \u0964",
    "1234567890 12,345,678.90 1e-12 0x1F", "\u0661\u0662\u0663 \u0967\u0968\u0969 \u0e51\u0e52", "x" * 99, "x" * 100, "x" * 101, "y" * 1000,
    "\u00e9" * 100, "\u00e9" * 101, "e\u0301" * 101, "\u4e2d" * 101, "-" * 101, "a" + "\u0301" * 150, "un" + "break" * 18 + "able x",
    "supercalifragilisticexpialidocious antidisestablishmentarianism", "zzzzqqqq xqzj \u2603\u2603\u2603", "\u0344\u0340\u0341\u0374\u037e\u0387\u1fef",
    "\U0001d165\U0001d16d \U0001d16d\U0001d165 a\u302f\u0315 a\u0315\u302f", "q\u0323\u0307 q\u0307\u0323 \u1e69 s\u0307\u0323",
    "\u0958 \u09dc \u0f43 \ufb1d \ufb2a \u2adc", "\U0001f130 \U0001d400\U0001d7ff \U00010400\U00010428", "\U0001e900\U0001e922 \u1c80 \ua64a \ua64b",
    "multiple   spaces    between     words", "tab-free  trailing space ", "<|endoftext|> <|endoftext", "I'LL'll'Ve've''s's'",
    "naïve café—“quoted” 中文,한국어;русский (mixed) 100%",
]


def ids_text(ids):
    return " ".join(map(str, ids)) + "\n"


def main():
    data = pathlib.Path(sys.argv[1])
    assert len(LINES) == 100 and not any("\n" in line or "\t" in line for line in LINES), len(LINES)
    bert = BertWordPieceTokenizer(str(data / "bert/bert-base-uncased-vocab.txt"), lowercase=True)
    gpt2 = ByteLevelBPETokenizer(str(data / "gpt2bpe/encoder.json"), str(data / "gpt2bpe/vocab.bpe"))
    gpt2.add_special_tokens(["<|endoftext|>"])

    def bert_ids(line):
        return ids_text(bert.encode(line, add_special_tokens=False).ids)

    def write(name, lines):
        (OUT / name).write_text("".join(lines), encoding="utf-8", newline="")

    rows = (data / "sst2/dev.tsv").read_text(encoding="utf-8").split("\n")[1:]
    write("hard_lines.txt", [line + "\n" for line in LINES])
    write("hard_bert.txt", map(bert_ids, LINES))
    write("hard_gpt2.txt", (ids_text(gpt2.encode(line).ids) for line in LINES))
    write("sst2_dev.txt", (bert_ids(row.split("\t")[0]) for row in rows if row))
    bert.enable_truncation(16)
    bert.enable_padding(length=16)
    pairs = []
    for a, b in zip(LINES[::2], LINES[1::2]):
        e = bert.encode(a, b)
        pairs += [ids_text(e.ids), ids_text(e.type_ids), ids_text(e.attention_mask)]
    write("pairs.txt", pairs)


if __name__ == "__main__":
    main()
