//! Sentences of a Markdown text, with their lengths.
//!
//! Code blocks, tables, headings, comments and the targets of links are no prose. Each item of a list ends the sentence before it.
//! Code within a line counts as one word. A colon or semicolon ends no sentence.

/// One sentence.
#[derive(Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Line of its first word, from 1.
    pub line: usize,
    /// Number of words.
    pub words: usize,
    /// First words, to find it again.
    pub start: String,
}

/// Words of `Sentence::start`.
const START_WORDS: usize = 8;
/// Ends of words that look like the end of a sentence.
const ABBREVIATIONS: [&str; 9] = ["al.", "pp.", "e.g.", "i.e.", "etc.", "cf.", "vs.", "approx.", "..."];
/// Stands for code within a line.
const CODE: char = '\u{1}';

/// Reads all sentences of a text.
pub fn sentences(text: &str) -> Vec<Sentence> {
    blocks(text).iter().flat_map(|block| split(block)).collect()
}

/// A paragraph or an item of a list: its lines with their numbers.
type Block<'a> = Vec<(usize, &'a str)>;

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = vec![Vec::new()];
    let (mut fence, mut comment, mut list) = (None, false, false);
    for (number, whole) in text.lines().enumerate() {
        let line = whole.trim_start().trim_start_matches("> ").trim();
        let mark = ["```", "~~~"].into_iter().find(|mark| line.starts_with(mark));
        if fence.is_some() {
            fence = fence.filter(|open| mark != Some(*open));
            continue;
        }
        comment |= line.starts_with("<!--");
        let is_paragraph = blocks.last().is_some_and(|block| !block.is_empty());
        let is_code = whole.starts_with("    ") && !is_paragraph && !list;
        let item = item(line);
        if mark.is_some() || comment || is_code || item.is_some() || !is_prose(line) {
            blocks.push(Vec::new());
        }
        fence = mark;
        list = item.is_some() || (list && (line.is_empty() || is_paragraph || whole.starts_with(' ')));
        if let (Some(block), false) = (blocks.last_mut(), mark.is_some() || comment || is_code || !is_prose(line)) {
            block.push((number + 1, item.unwrap_or(line)));
        }
        comment &= !line.contains("-->");
    }
    blocks
}

/// The text of an item of a list, behind its mark.
fn item(line: &str) -> Option<&str> {
    let (mark, rest) = line.split_once(' ')?;
    let digits = mark.trim_end_matches(['.', ')']);
    let numbered = digits.len() < mark.len() && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    (numbered || ["*", "-", "+"].contains(&mark)).then_some(rest)
}

/// Whether a line is neither empty nor a heading, a row of a table, or the target of a link.
fn is_prose(line: &str) -> bool {
    let target = line.starts_with('[') && line.contains("]: ");
    !(line.is_empty() || line.starts_with(['#', '|']) || line.starts_with("---") || target)
}

fn split(block: &Block<'_>) -> Vec<Sentence> {
    let text: Vec<&str> = block.iter().map(|(_, line)| *line).collect();
    let plain = plain(&text.join("\n"));
    let (mut sentences, mut words) = (Vec::new(), Vec::new());
    let mut start = 0;
    for (line, word) in
        plain.split('\n').enumerate().flat_map(|(line, text)| text.split_whitespace().map(move |word| (line, word)))
    {
        if word.chars().any(|letter| letter.is_alphanumeric() || letter == CODE) && !is_label(word) {
            if words.is_empty() {
                start = block.get(line).or(block.last()).map_or(1, |(number, _)| *number);
            }
            words.push(word);
        }
        if ends(word) {
            sentences.extend(sentence(start, &std::mem::take(&mut words)));
        }
    }
    sentences.extend(sentence(start, &words));
    sentences
}

fn sentence(line: usize, words: &[&str]) -> Option<Sentence> {
    // A clause's list of tests is read by the check of clauses, not by people.
    if words.first().is_none_or(|word| *word == "Tests:") {
        return None;
    }
    let start: Vec<&str> = words.iter().take(START_WORDS).copied().collect();
    Some(Sentence { line, words: words.len(), start: start.join(" ").replace(CODE, "`..`") })
}

/// Whether a word is the number of a clause, like "S7.".
fn is_label(word: &str) -> bool {
    let number = word.strip_prefix('S').and_then(|rest| rest.strip_suffix('.'));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn ends(word: &str) -> bool {
    let bare = word.trim_end_matches([')', '"', '\'', '”', '’']);
    bare.ends_with(['.', '!', '?']) && !ABBREVIATIONS.iter().any(|end| bare.to_lowercase().ends_with(end))
}

/// The text with one word for each piece of code, and without emphasis and the targets of links. Keeps its lines.
fn plain(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some(next) = rest.chars().next() {
        let skipped = match next {
            '`' => code(rest),
            ']' if rest.starts_with("](") => rest.find(')').map(|end| end + 1),
            _ => None,
        };
        if let Some(length) = skipped {
            plain.extend((next == '`').then_some(CODE));
            // Line breaks within the code come behind it, and so the numbers of lines stay right.
            plain.extend(rest[..length].chars().filter(|letter| *letter == '\n'));
            rest = &rest[length..];
        } else {
            plain.extend((!['*', '[', ']'].contains(&next)).then_some(next));
            rest = &rest[next.len_utf8()..];
        }
    }
    plain
}

/// Length of the piece of code that the text begins with, its quotes included.
fn code(text: &str) -> Option<usize> {
    let quotes = text.len() - text.trim_start_matches('`').len();
    let end = text[quotes..].find(&text[..quotes])?;
    Some(quotes + end + quotes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Line and words of each sentence.
    fn lengths(text: &str) -> Vec<(usize, usize)> {
        sentences(text).into_iter().map(|sentence| (sentence.line, sentence.words)).collect()
    }

    #[test]
    fn sentences_end_with_their_marks_and_with_the_paragraph() {
        assert_eq!(
            lengths("One two. Three\nfour five? (Six.)\n\nSeven: eight; nine\n"),
            [(1, 2), (1, 3), (2, 1), (4, 3)]
        );
    }

    #[test]
    fn items_of_lists_are_sentences() {
        assert_eq!(lengths("Some:\n* one two\n  three\n* four\n\n1. five six\n"), [(1, 1), (2, 3), (4, 1), (6, 2)]);
    }

    #[test]
    fn code_tables_headings_and_targets_are_no_prose() {
        let text = "# A heading\n```\nlet a = b. c;\n```\n| a | b. |\n\n    indented code\n<!-- a\ncomment -->\n[x]: http://a b\nOne.\n";
        assert_eq!(lengths(text), [(11, 1)]);
        assert_eq!(lengths("See [the two](docs/a.md) here.\n"), [(1, 4)]);
    }

    #[test]
    fn code_in_a_line_is_one_word_also_over_two_lines() {
        assert_eq!(lengths("Call `f(a, b.c) d` now.\nThen `x\ny` z. End.\n"), [(1, 3), (2, 3), (3, 1)]);
        assert_eq!(lengths("One `two three`. Four.\n"), [(1, 2), (1, 1)]);
    }

    #[test]
    fn abbreviations_versions_and_labels_end_nothing() {
        assert_eq!(lengths("**S7.** Linux 6.9, e.g. here - etc. and so on.\n"), [(1, 8)]);
    }

    #[test]
    fn a_list_of_tests_is_no_sentence() {
        assert_eq!(lengths("One two.\nTests: `a`, `b`,\n`c`.\n"), [(1, 2)]);
    }
}
