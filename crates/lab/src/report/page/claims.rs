//! Which levels are confirmed.

use crate::report::Found;
use crate::report::timeline::escape;
use std::fmt::Write;

pub(super) fn write(html: &mut String, found: &Found) {
    html.push_str(
        "<h2 id=\"levels\">Levels</h2><p>A level is confirmed when each of its properties holds under each of ",
    );
    html.push_str(
        "its faults, and there is a witness against the next level up.</p><div class=\"wide\"><table class=\"levels\">",
    );
    html.push_str("<tr><th>engine</th><th>what the deployment says it is</th><th>level</th><th>confirmed</th>");
    html.push_str(
        "<th class=\"n\">experiments</th><th class=\"n\">hits</th><th>the level above, and what is lacking</th></tr>",
    );
    for claim in &found.claims {
        let (class, said) = if claim.confirmed { ("holds", "yes") } else { ("inconclusive", "no") };
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"{class}\">{said}</td><td class=\"n\">{}</td><td \
             class=\"n\">{}</td><td>{}",
            escape(&claim.engine),
            escape(&claim.server),
            escape(&claim.level),
            claim.experiments,
            claim.hits,
            escape(&claim.above)
        );
        for line in claim.lacks.iter().filter(|lack| **lack != claim.above) {
            let _ = write!(html, "<br><span class=\"inconclusive\">lacks: {}</span>", escape(line));
        }
        for line in &claim.borrowed {
            let _ = write!(html, "<br><span class=\"dim\">{}</span>", escape(line));
        }
        html.push_str("</td></tr>");
    }
    html.push_str("</table></div>");
}
