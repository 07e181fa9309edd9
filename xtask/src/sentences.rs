//! Sentences stay short: in the documents, and in documentation comments of public items.

use std::collections::BTreeMap;

use crate::docs::public_comments;
use crate::prose::{Sentence, sentences};
use crate::ratchet::Findings;
use crate::sources::Sources;

/// Words of one sentence.
const WORDS_MAX: usize = 40;
/// Words of a sentence that is long, but no finding.
const WORDS_LONG: usize = 30;
/// Words of a document's median sentence.
const MEDIAN_MAX: f64 = 18.0;

/// Finds sentences that are too long, and documents whose sentences are long.
pub fn check(sources: &Sources) -> Findings {
    let mut findings = Findings::default();
    let root = sources.matching("", ".md").filter(|(path, _)| !path.contains('/'));
    for (path, text) in root.chain(sources.matching("docs/", ".md")) {
        let lengths = check_text(path, 0, text, &mut findings);
        let median = median(&lengths);
        if median > MEDIAN_MAX {
            findings.add(path, 1, format!("half of the sentences have {median} words or more, at most {MEDIAN_MAX}"));
        }
        findings.note(format!("{path}: {}", summary(&lengths)));
    }
    let mut crates = BTreeMap::<&str, Vec<usize>>::new();
    for file in &sources.product().files {
        for comment in public_comments(&file.ast) {
            let lengths = check_text(&file.path, comment.line - 1, &comment.text, &mut findings);
            crates.entry(&file.krate).or_default().extend(lengths);
        }
    }
    for (krate, lengths) in crates {
        findings.note(format!("comments of {krate}: {}", summary(&lengths)));
    }
    findings
}

/// Finds the long sentences of one text whose first line is `before` lines below the first of its file. Returns all lengths.
fn check_text(path: &str, before: usize, text: &str, findings: &mut Findings) -> Vec<usize> {
    let found = sentences(text);
    for Sentence { line, words, start } in found.iter().filter(|sentence| sentence.words > WORDS_MAX) {
        findings.add(path, before + line, format!("a sentence of {words} words, at most {WORDS_MAX}: {start} ..."));
    }
    found.into_iter().map(|sentence| sentence.words).collect()
}

fn summary(lengths: &[usize]) -> String {
    let over = |max| lengths.iter().filter(|words| **words > max).count();
    let (long, too_long) = (over(WORDS_LONG), over(WORDS_MAX));
    let median = median(lengths);
    format!("{} sentences, median {median} words, {long} over {WORDS_LONG}, {too_long} over {WORDS_MAX}", lengths.len())
}

fn median(lengths: &[usize]) -> f64 {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    match sorted.len() {
        0 => 0.0,
        count => (sorted[(count - 1) / 2] + sorted[count / 2]) as f64 / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sentence of so many words.
    fn of(words: usize) -> String {
        format!("{}end. ", "word ".repeat(words - 1))
    }

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        check(&Sources::of(&[(path, text)])).list.into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn a_sentence_of_more_than_forty_words_is_a_finding() {
        let text = format!("{}{}\n\n{}", of(2), of(3), of(41));
        let found = found("README.md", &text);
        assert_eq!((found.len(), found[0].0), (1, 3));
        assert!(self::found("docs/a.md", &(of(2) + &of(40) + &of(3))).is_empty());
    }

    #[test]
    fn a_document_of_long_sentences_is_a_finding() {
        assert_eq!(found("docs/adr/a.md", &(of(5) + &of(19) + &of(19))).len(), 1);
        assert!(found("docs/adr/a.md", &(of(5) + &of(18) + &of(19))).is_empty());
        assert_eq!(found("docs/adr/a.md", &(of(18) + &of(19)))[0].1.split(' ').nth(5), Some("18.5"));
    }

    #[test]
    fn public_comments_are_read_and_other_texts_are_not() {
        let comment =
            |visibility| format!("//! A file.\n\n/// Short.\n///\n/// {}\n{visibility} fn f() {{}}\n", of(41));
        assert_eq!(found("crates/x/a/src/lib.rs", &comment("pub"))[0].0, 5);
        assert!(found("crates/x/a/src/lib.rs", &comment("")).is_empty());
        assert!(found("crates/x/README.md", &of(41)).is_empty());
    }

    #[test]
    fn long_sentences_are_noted() {
        let notes = check(&Sources::of(&[("README.md", &(of(31) + &of(2) + &of(4)))])).notes;
        assert_eq!(notes, ["README.md: 3 sentences, median 4 words, 1 over 30, 0 over 40"]);
    }
}
