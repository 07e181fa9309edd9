//! Tests of the table of keys.

use super::*;

#[test]
fn every_default_in_the_table_is_the_default_policy() {
    for key in &KEYS {
        let mut policy = Policy::default();
        (key.read)(&mut policy, key.default).unwrap();
        assert_eq!(policy, Policy::default(), "{}", key.name);
        assert_eq!((key.write)(&policy), key.default, "{}", key.name);
    }
}

#[test]
fn every_word_of_the_syntax_is_taken_and_written_back() {
    for key in &KEYS {
        for form in key.syntax.split('|') {
            let text = match form {
                "T" => "90s".to_string(),
                "PERCENT" => "2.5%".to_string(),
                "N" => "1MiB".to_string(),
                "COUNT" => "7".to_string(),
                _ => form.replace(":T", ":90s").replace(":N", ":3MiB").replace("N/s", "3MiB/s"),
            };
            let mut policy = Policy::default();
            (key.read)(&mut policy, &text).unwrap_or_else(|e| panic!("{} {text}: {e}", key.name));
            assert_eq!((key.write)(&policy), text, "{}", key.name);
        }
    }
}

#[test]
fn a_mistyped_key_is_answered_with_the_nearest() {
    let nearest = |name: &str| match key(name) {
        Err(KeyError::Unknown { nearest, .. }) => nearest,
        other => panic!("{other:?}"),
    };
    assert_eq!(nearest("stageout"), Some("stage_out"));
    assert_eq!(nearest("stage-out"), Some("stage_out"));
    assert_eq!(nearest("Cache"), Some("cache"));
    assert_eq!(nearest("keep_aftr"), Some("keep_after"));
    assert_eq!(nearest("colour_of_the_sky"), None);
    assert_eq!(nearest("x"), None);
}

#[test] // S34
fn planned_keys_and_values_are_refused_with_the_reason() {
    for name in ABSENT {
        assert!(key(name).unwrap_err().to_string().contains("not available in this version"));
    }
    let mut policy = Policy::default();
    let refusal = (key("consistency").unwrap().read)(&mut policy, "strict").unwrap_err();
    assert!(refusal.contains("not available"), "{refusal}");
    assert_eq!(policy, Policy::default());
}

#[test]
fn values_that_make_no_sense_are_refused() {
    for (name, value) in [
        ("cache", "yes"),
        ("cache", ""),
        ("stage_out", "idle"),
        ("stage_out", "idle:soon"),
        ("passthrough_reserve", "5"),
        ("passthrough_reserve", "95%"),
        ("rate", "0"),
        ("revalidate", "1"),
        ("unavailable", "never"),
        ("unavailable", "0s"),
        ("unavailable", "999ms"),
        ("small_file", "1025KiB"),
    ] {
        let mut policy = Policy::default();
        assert!((key(name).unwrap().read)(&mut policy, value).is_err(), "{name}={value}");
    }
}
