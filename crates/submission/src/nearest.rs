//! "Did you mean": the known word that a misspelt one is nearest to.
//!
//! Used for names of fields and parameters, for the words of enums, for time zones and for keys of
//! the configuration. Invariant: the time is bounded however long the text is.

use strsim::damerau_levenshtein;

/// The maximum length of a text that is compared, in bytes: longer than any known word.
const COMPARED_MAX: usize = 64;
/// The maximum number of changed characters in a word of six or more.
const CHANGES_MAX: usize = 2;

/// The known word that `text` is probably meant to be: one that differs by few characters, or the
/// only one that it is the beginning or the end of, as `delay` is of `delay_seconds`. Case makes no
/// difference, nor does a hyphen or a blank in place of an underscore.
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
    let known: Vec<&str> = known.into_iter().collect();
    let distances = known.iter().map(|word| (damerau_levenshtein(&folded(word), &text), *word));
    let nearest = distances.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance);
    nearest.map(|(_, word)| word).or_else(|| longer(&text, &known))
}

/// The only known word that begins or ends with `text` and an underscore between.
fn longer<'a>(text: &str, known: &[&'a str]) -> Option<&'a str> {
    let (beginning, end) = (format!("{text}_"), format!("_{text}"));
    let mut longer = known.iter().filter(|word| word.starts_with(&beginning) || word.ends_with(&end));
    longer.next().filter(|_| longer.next().is_none()).copied()
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

    const KNOWN: [&str; 8] =
        ["priority", "payload", "retry_policy", "type", "skip", "sky", "ordering_key", "idempotency_key"];

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
            ("retry", "retry_policy"),
            ("Policy", "retry_policy"),
        ] {
            assert_eq!(nearest(text, KNOWN), Some(word), "{text}");
        }
    }

    #[test]
    fn another_word_has_no_nearest_one() {
        for text in ["", "x", "tap", "skin3", "queue", "key", &"payload".repeat(10)] {
            assert_eq!(nearest(text, KNOWN), None, "{text}");
        }
        assert_eq!(did_you_mean("nothing", KNOWN), "");
        assert_eq!(did_you_mean("paylod", KNOWN), "; did you mean `payload`?");
    }
}
