//! A documentation comment is read alone, in an editor or a page: it must not begin with a word for something said elsewhere.

use crate::ratchet::Findings;
use crate::sources::Sources;

/// First words that leave the noun out.
const OPENINGS: [&str; 8] = ["The same", "It", "Its", "They", "Their", "As what", "Who", "What"];
/// Words that make a first "This" a pronoun; before a noun it is none.
const AFTER_THIS: [&str; 12] =
    ["is", "was", "has", "had", "does", "did", "can", "may", "must", "will", "means", "makes"];

/// Finds documentation comments of all Rust files that begin so.
pub fn check(sources: &Sources) -> Findings {
    let mut findings = Findings::default();
    for (path, text) in sources.matching("", ".rs") {
        for (line, comment) in first_lines(text) {
            if let Some(opening) = opening(comment) {
                findings.add(path, line, format!("begins with \"{opening}\": {comment}"));
            }
        }
    }
    findings
}

/// Number and text of the first line of each documentation comment.
fn first_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut before = None;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let line = line.trim_start();
        let mark = ["///", "//!"].into_iter().find(|mark| line.starts_with(mark) && !line.starts_with("////"));
        let first = mark.filter(|_| mark != before);
        before = mark;
        first.map(|mark| (number + 1, line.trim_start_matches(mark).trim()))
    })
}

/// The words at the beginning that do not stand alone, if there are such.
fn opening(comment: &str) -> Option<&'static str> {
    let begins = |opening: &str| {
        let rest = comment.strip_prefix(opening);
        rest.is_some_and(|rest| rest.chars().next().is_none_or(|next| !next.is_alphanumeric() && next != '_'))
    };
    if let Some(second) = comment.strip_prefix("This ").and_then(|rest| rest.split_whitespace().next())
        && AFTER_THIS.contains(&second)
    {
        return Some("This");
    }
    OPENINGS.into_iter().find(|opening| begins(opening))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str) -> Vec<usize> {
        check(&Sources::of(&[("crates/x/a/src/lib.rs", code)])).list.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_comment_that_begins_with_a_pronoun_is_a_finding() {
        let openings =
            ["Its right.", "It's new.", "The same, later.", "What came.", "This is one.", "As what it is noted."];
        for opening in openings {
            assert_eq!(found(&format!("//! A file.\n\n/// {opening}\nfn a() {{}}\n")), [3], "{opening}");
        }
        assert_eq!(found("//! Who knows.\n"), [1]);
    }

    #[test]
    fn a_comment_with_its_noun_is_none() {
        for opening in
            ["Item of a list.", "The lease.", "This machine's name.", "Whatever.", "Whether it is so.", "Theirs"]
        {
            assert!(found(&format!("/// {opening}\n")).is_empty(), "{opening}");
        }
    }

    #[test]
    fn later_lines_and_plain_comments_are_none() {
        assert!(found("/// A lease.\n/// It ends.\n// It is plain.\n//// It is plain.\n").is_empty());
        assert_eq!(found("//! A file.\n/// It is.\nfn a() {}\n/// Its end.\nfn b() {}\n"), [2, 4]);
    }
}
