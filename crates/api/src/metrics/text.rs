//! The older Prometheus text format, converted from OpenMetrics.
//!
//! The two differ in the heads of the families: the older one names a counter with its `_total` and
//! has no `info`, no units and no end mark. Scrapers that ask for neither get the older one.

/// The same samples in the Prometheus text format, version 0.0.4.
pub(super) fn prometheus(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len() + 256);
    let mut help: Option<(&str, &str)> = None;
    for line in openmetrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), Some(sentence)) => help = Some((name, sentence)),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    other => ("", other),
                };
                if let Some((_, sentence)) = help.take().filter(|(named, _)| *named == name) {
                    text.extend(["# HELP ", name, suffix, " ", sentence, "\n"]);
                }
                text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
            }
            (Some("#"), ..) => {}
            _ => {
                text.extend([line, "\n"]);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_samples_have_the_same_names() {
        let openmetrics = "# HELP a Things.\n# TYPE a counter\na_total 1\n\
                           # HELP b_seconds Time.\n# TYPE b_seconds histogram\n# UNIT b_seconds seconds\nb_seconds_sum 1\n\
                           # HELP c Version.\n# TYPE c info\nc_info{v=\"1\"} 1\n# EOF\n";
        let expected = "# HELP a_total Things.\n# TYPE a_total counter\na_total 1\n\
                        # HELP b_seconds Time.\n# TYPE b_seconds histogram\nb_seconds_sum 1\n\
                        # HELP c_info Version.\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n";
        assert_eq!(prometheus(openmetrics), expected);
    }
}
