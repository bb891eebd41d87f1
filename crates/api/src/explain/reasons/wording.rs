//! Positions, numbers and instants as words of a message.

use punctual_client::Reason;
use punctual_core::obstacles::TasksAhead;
use punctual_core::time::Timestamp;

/// The reason with the position of the task, if that is known.
pub(super) fn with_position(reason: Reason, ahead: TasksAhead) -> Reason {
    if is_unknown(ahead) {
        return reason;
    }
    Reason { position: Some(ahead.tasks.saturating_add(1)), position_or_later: ahead.or_more, ..reason }
}

/// How many tasks of the queue go before it.
pub(super) fn queue_ahead(ahead: TasksAhead) -> String {
    match ahead {
        ahead if is_unknown(ahead) => {
            "how many other tasks of the queue go before it was not counted, since those that wait are of too many \
             different types and targets"
                .to_owned()
        }
        TasksAhead { tasks: 0, .. } => "it is the next".to_owned(),
        TasksAhead { tasks: 1, or_more: false } => "one other task of the queue goes before it".to_owned(),
        ahead => format!("{} other tasks of the queue go before it", number(ahead)),
    }
}

/// No task that was read goes before it, but not all were read.
fn is_unknown(ahead: TasksAhead) -> bool {
    ahead.tasks == 0 && ahead.or_more
}

/// How many tasks wait for the turn before it.
pub(super) fn turn_ahead(ahead: TasksAhead) -> String {
    match ahead {
        TasksAhead { tasks: 0, .. } => "no task waits before it".to_owned(),
        TasksAhead { tasks: 1, or_more: false } => "1 waits before it".to_owned(),
        ahead => format!("{} wait before it", number(ahead)),
    }
}

fn number(ahead: TasksAhead) -> String {
    or_more(ahead.tasks, ahead.or_more)
}

/// A number, or at least that number.
pub(super) fn or_more(number: u64, or_more: bool) -> String {
    format!("{}{}", thousands(number), if or_more { " or more" } else { "" })
}

/// A number of things.
pub(super) fn quantity(number: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(number), if number == 1 { "" } else { "s" })
}

/// A number of things, and what they do.
pub(super) fn doing(number: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(number), if number == 1 { "s" } else { "" })
}

/// A number with commas between the thousands.
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

/// The instant this many tasks later, at this rate.
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
    fn an_unknown_position_is_not_shown() {
        let unknown = TasksAhead { tasks: 0, or_more: true };
        let shown = with_position(Reason::default(), unknown);
        assert_eq!((shown.position, shown.position_or_later), (None, false));
        assert!(queue_ahead(unknown).contains("was not counted"), "{}", queue_ahead(unknown));
        let shown = with_position(Reason::default(), TasksAhead { tasks: 1, or_more: true });
        assert_eq!((shown.position, shown.position_or_later), (Some(2), true));
        assert_eq!(queue_ahead(TasksAhead { tasks: 0, or_more: false }), "it is the next");
    }
}
