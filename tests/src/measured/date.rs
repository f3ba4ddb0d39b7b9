//! The day on which a file was written.

use super::Result;
use std::path::Path;
use std::time::UNIX_EPOCH;

pub(super) fn of(file: &Path) -> Result<String> {
    let written = std::fs::metadata(file)?.modified()?;
    let day = written.duration_since(UNIX_EPOCH)?.as_secs() / 86_400;
    Ok(written_out(i64::try_from(day)?))
}

/// Of a number of days since 1970, in UTC.
fn written_out(day: i64) -> String {
    // Years begin in March here, so that the day that not every year has comes last.
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + later)
}

#[cfg(test)]
mod tests {
    use super::written_out;

    #[test]
    fn days_have_dates() {
        let days = [(0, "1970-01-01"), (59, "1970-03-01"), (11_016, "2000-02-29"), (20_787, "2026-11-30")];
        for (day, date) in days {
            assert_eq!(written_out(day), date);
        }
    }
}
