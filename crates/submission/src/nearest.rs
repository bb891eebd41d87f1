//! "Did you mean": the known word that a misspelt one is nearest to.
//!
//! Used for names of fields and parameters, for the words of enums, for time zones and for keys of
//! the configuration. Invariant: the time is bounded however long the text is.

use strsim::damerau_levenshtein;

/// The maximum length of a text that is compared, in bytes: longer than any known word.
const COMPARED_MAX: usize = 64;
/// The maximum number of changed characters in a word of six or more.
const CHANGES_MAX: usize = 2;

/// The known word that `text` is probably meant to be. Case makes no difference, nor does a hyphen
/// or a blank in place of an underscore.
pub fn nearest<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if text.is_empty() || text.len() > COMPARED_MAX {
        return None;
    }
    let text = folded(text);
    // In a short word two changed characters make another word, and in a letter one does.
    let most = match text.chars().count() {
        0 | 1 => return None,
        2..=5 => 1,
        _ => CHANGES_MAX,
    };
    let distances = known.into_iter().map(|word| (damerau_levenshtein(&folded(word), &text), word));
    distances.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance).map(|(_, word)| word)
}

/// The end of a fault's sentence about `text`: empty if no known word is near.
pub fn did_you_mean<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(text, known).map_or_else(String::new, |word| format!("; did you mean `{word}`?"))
}

fn folded(text: &str) -> String {
    text.chars().map(|c| if matches!(c, '-' | ' ') { '_' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 6] = ["priority", "payload", "retry_policy", "type", "skip", "sky"];

    #[test]
    fn a_misspelt_word_has_a_nearest_one() {
        for (text, word) in [
            ("prioirty", "priority"),
            ("Priority", "priority"),
            ("retryPolicy", "retry_policy"),
            ("retry-policy", "retry_policy"),
            ("SKIP", "skip"),
            ("typ", "type"),
            ("sk", "sky"),
        ] {
            assert_eq!(nearest(text, KNOWN), Some(word), "{text}");
        }
    }

    #[test]
    fn another_word_has_no_nearest_one() {
        for text in ["", "x", "tap", "skin3", "queue", &"payload".repeat(10)] {
            assert_eq!(nearest(text, KNOWN), None, "{text}");
        }
        assert_eq!(did_you_mean("nothing", KNOWN), "");
        assert_eq!(did_you_mean("paylod", KNOWN), "; did you mean `payload`?");
    }
}
