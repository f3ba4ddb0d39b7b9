//! One line of the results.

use serde::{Deserialize, Serialize};

/// What one contender did in one case; in JSON a line of its own. Times are in
/// microseconds; what does not apply is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) engine: String,
    /// `ours`, `floor`, or the peer.
    pub(crate) who: String,
    pub(crate) ops_per_s: Option<f64>,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    /// Operations a second, as a part of the floor's.
    pub(crate) ratio_to_floor: Option<f64>,
    pub(crate) rounds: usize,
    /// Whether client and server shared one processor.
    pub(crate) pinned: bool,
    /// Processor time for each operation.
    pub(crate) client_cpu_us: Option<f64>,
    pub(crate) server_cpu_us: Option<f64>,
    /// Commands that the server was sent for each operation.
    pub(crate) commands: Option<f64>,
    /// What only this case has: a number, and what it is.
    pub(crate) value: Option<f64>,
    pub(crate) unit: Option<String>,
    /// The smallest share of the tasks, as a part of the largest.
    pub(crate) evenness: Option<f64>,
    /// Where it could not be measured.
    pub(crate) not_measured: Option<String>,
}

impl Row {
    pub(crate) fn to_json(&self) -> String {
        // It is made of numbers, texts and nothing else: that cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn from_json(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_one_line_of_json_and_comes_back() {
        let row = Row {
            case: "one task".into(),
            engine: "redis".into(),
            who: "ours".into(),
            ops_per_s: Some(12_345.5),
            ratio_to_floor: Some(0.97),
            rounds: 9,
            pinned: true,
            not_measured: Some("it said:\n\"no\"".into()),
            ..Row::default()
        };
        let json = row.to_json();
        assert!(!json.contains('\n'));
        for key in ["case", "engine", "who", "ops_per_s", "p50_us", "p99_us", "ratio_to_floor", "rounds"] {
            assert!(json.contains(&format!("\"{key}\":")), "{key} in {json}");
        }
        assert!(json.contains("\"p50_us\":null"));
        assert_eq!(Row::from_json(&json), Some(row));
        assert_eq!(Row::from_json("no"), None);
    }
}
