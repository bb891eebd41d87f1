//! Classes of expressions. In braces: local times at a change of clocks, so that every change is
//! hit.
//!
//! `lo` and `hi` bound the gap or the fold, `mid` is in its middle; each as `minute hour`
//! (`{mid}`), or one of the two (`{m:mid}`, `{h:mid}`). `{dom}`, `{mon}`, `{dow}` and `{nth}` are
//! the date of `mid`.
//!
//! The example `next` uses them for measurements too.

use jiff::tz::TimeZone;

/// A change of clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// The first second with the new distance from UTC.
    pub(super) at: i64,
    pub(super) before: i64,
    pub(super) after: i64,
}

pub(super) struct Template(&'static str);

pub(super) const CLASSES: &[Template] = &[
    Template("* * * * *"),
    Template("*/5 * * * *"),
    Template("*/15 * * * *"),
    Template("0 * * * *"),
    Template("30 */2 * * *"),
    Template("0 */3 * * *"),
    Template("17,43 * * * *"),
    Template("{m:mid} */1 * * *"),
    Template("*/10 * {dom} {mon} *"),
    Template("@hourly"),
    Template("@daily"),
    Template("@weekly"),
    Template("@monthly"),
    Template("@yearly"),
    Template("30 2 * * *"),
    Template("30 1 * * *"),
    Template("0 3 * * *"),
    Template("59 23 * * *"),
    Template("15,45 0-4 * * *"),
    Template("*/20 1-3 * * *"),
    Template("0 22-4 * * *"),
    Template("0 0-23 * * *"),
    Template("30 0-23/2 * * *"),
    Template("30 3/6 * * *"),
    Template("1 0 * * SUN"),
    Template("30 2 * * MON-FRI"),
    Template("30 2 * * FRI-MON"),
    Template("0 2 * MAR,OCT,NOV SUN"),
    Template("30 2 L * *"),
    Template("30 2 L-3 * *"),
    Template("30 2 LW * *"),
    Template("30 2 1W,15W,31W * *"),
    Template("30 2 31 * *"),
    Template("30 2 27-30 * *"),
    Template("30 2 1/10,29W * *"),
    Template("30 2 */2,30 * *"),
    Template("30 2 * * 0L"),
    Template("30 2 * * SUN#2"),
    Template("30 2 8-14 * 7"),
    Template("30 2 */2 * SUN"),
    Template("30 2 1-7 * */6"),
    Template("30 2 ? * SUN#1,SUN#4,SUN#5"),
    Template("0 0 29 2 *"),
    Template("0 0 * 2 MON#5"),
    Template("15 30 2 * * *"),
    Template("*/20 * * * * *"),
    Template("0,30 59 * * * *"),
    Template("10-50/20 0/30 2 * * *"),
    Template("{lo} * * *"),
    Template("{mid} * * *"),
    Template("{hi} * * *"),
    Template("{last} * * *"),
    Template("{before} * * *"),
    Template("{mid} {dom} {mon} *"),
    Template("{lo} {dom} {mon} ?"),
    Template("{hi} {dom} {mon} *"),
    Template("{mid} * * {dow}"),
    Template("{mid} {dom} * {dow}"),
    Template("{mid} {dom}W {mon} *"),
    Template("{mid} LW,L,{dom} {mon} ?"),
    Template("{mid} ? {mon} {dow}L"),
    Template("{mid} ? * {dow}#{nth}"),
    Template("* {h:mid} * * *"),
    Template("* {h:hi} {dom} * *"),
    Template("*/7 {h:lo}-{h:hi} * * *"),
    Template("0,{m:mid},{m:last} {h:lo},{h:mid},{h:hi} * * *"),
    Template("{m:mid} {h:mid}/1 * * *"),
    Template("{m:mid} {h:mid},*/5 * * *"),
    Template("*/20 {h:lo},*/2 * * *"),
    Template("0,30 */2,{h:mid},{h:hi} * * *"),
    Template("15 *,{h:mid} * * *"),
    Template("30 {mid} * * *"),
    Template("*/13 {last} * * *"),
    Template("59 59 {h:before} * * *"),
];

impl Template {
    pub(super) fn filled_in(&self, change: &Change) -> String {
        if !self.0.contains('{') {
            return self.0.to_owned();
        }
        let (lo, hi) = (change.at + change.before.min(change.after), change.at + change.before.max(change.after));
        let mut text = self.0.to_owned();
        let mid = lo + (hi - lo) / 2;
        for (name, local) in [("lo", lo), ("mid", mid), ("hi", hi), ("last", hi - 60), ("before", lo - 60)] {
            let (minute, hour) = (local.rem_euclid(3_600) / 60, local.rem_euclid(86_400) / 3_600);
            text = text
                .replace(&format!("{{{name}}}"), &format!("{minute} {hour}"))
                .replace(&format!("{{m:{name}}}"), &minute.to_string())
                .replace(&format!("{{h:{name}}}"), &hour.to_string());
        }
        let date = TimeZone::UTC
            .to_datetime(jiff::Timestamp::from_second(mid).expect("invariant: the second is in a supported year"))
            .date();
        text.replace("{dom}", &date.day().to_string())
            .replace("{mon}", &date.month().to_string())
            .replace("{dow}", &date.weekday().to_sunday_zero_offset().to_string())
            .replace("{nth}", &((date.day() + 6) / 7).to_string())
    }
}
