//! Places in lines, numbers and instants, as sentences tell them.

use punctual_client::Reason;
use punctual_core::obstacles::Ahead;
use punctual_core::time::Timestamp;

/// A reason that tells the place of the task in its line, if anything is known of that.
pub(super) fn in_line(told: Reason, ahead: Ahead) -> Reason {
    if is_unknown(ahead) {
        return told;
    }
    Reason { position: Some(ahead.tasks.saturating_add(1)), position_or_later: ahead.or_more, ..told }
}

/// How many go before it, for a sentence.
pub(super) fn others(ahead: Ahead) -> String {
    match ahead {
        ahead if is_unknown(ahead) => {
            "how many other tasks of the queue go before it was not counted, since those that wait are of too many \
             different types and targets"
                .to_owned()
        }
        Ahead { tasks: 0, .. } => "it is the next".to_owned(),
        Ahead { tasks: 1, or_more: false } => "one other task of the queue goes before it".to_owned(),
        ahead => format!("{} other tasks of the queue go before it", number(ahead)),
    }
}

/// Nobody that was looked at goes before it, and not all were.
fn is_unknown(ahead: Ahead) -> bool {
    ahead.tasks == 0 && ahead.or_more
}

/// How many wait before it for the turn, for a sentence.
pub(super) fn before(ahead: Ahead) -> String {
    match ahead {
        Ahead { tasks: 0, .. } => "nobody waits before it".to_owned(),
        Ahead { tasks: 1, or_more: false } => "1 waits before it".to_owned(),
        ahead => format!("{} wait before it", number(ahead)),
    }
}

fn number(ahead: Ahead) -> String {
    or_more(ahead.tasks, ahead.or_more)
}

/// A number, or that and more.
pub(super) fn or_more(number: u64, or_more: bool) -> String {
    format!("{}{}", thousands(number), if or_more { " or more" } else { "" })
}

/// So many of these.
pub(super) fn many(number: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(number), if number == 1 { "" } else { "s" })
}

/// So many do this.
pub(super) fn doing(number: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(number), if number == 1 { "s" } else { "" })
}

/// A number as people write it.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The instant so many tasks later, at so many a second.
pub(super) fn later(now: Timestamp, tasks: f64, per_second: f64) -> Timestamp {
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, and so does the instant")]
    let millis = (tasks.max(0.0) / per_second * 1_000.0).ceil() as i64;
    now.plus_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        let written: Vec<String> = [0, 7, 999, 1_000, 10_000, 1_234_567].map(thousands).to_vec();
        assert_eq!(written, ["0", "7", "999", "1,000", "10,000", "1,234,567"]);
    }

    #[test]
    fn a_place_of_which_nothing_is_known_is_not_told() {
        let unknown = Ahead { tasks: 0, or_more: true };
        let told = in_line(Reason::default(), unknown);
        assert_eq!((told.position, told.position_or_later), (None, false));
        assert!(others(unknown).contains("was not counted"), "{}", others(unknown));
        let told = in_line(Reason::default(), Ahead { tasks: 1, or_more: true });
        assert_eq!((told.position, told.position_or_later), (Some(2), true));
        assert_eq!(others(Ahead { tasks: 0, or_more: false }), "it is the next");
    }
}
