//! A page with a table and time lines of holders, which needs nothing from anywhere.

use std::fmt::Write;
use std::time::Duration;

/// A piece of a time line; all times are microseconds of one clock.
#[derive(Debug)]
pub struct Scene {
    /// What happens.
    pub title: &'static str,
    /// Who may hold, one a lane.
    pub lanes: [&'static str; 2],
    /// When it begins.
    pub from: u64,
    /// Who held: lane, from, until.
    pub holds: Vec<(usize, u64, u64)>,
    /// What went wrong on a lane: lane, from, until, what.
    pub faults: Vec<(usize, u64, u64, &'static str)>,
    /// What was said, and when.
    pub notes: Vec<(u64, String)>,
}

impl Scene {
    /// When two held at once, if they did.
    #[must_use]
    pub fn both(&self) -> Option<(u64, u64)> {
        let [(_, a, b), (_, c, d)] = self.holds[..] else { return None };
        Some((a.max(c), b.min(d))).filter(|(from, to)| from < to)
    }
}

/// A table to be printed, its columns as wide as they have to be.
#[must_use]
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let wide =
        |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(wide).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Microseconds as seconds, to be read.
#[must_use]
pub fn seconds(micros: u64) -> String {
    format!("{:.2} s", Duration::from_micros(micros).as_secs_f64())
}

/// The page, as far as it is written.
#[derive(Debug)]
pub struct Page(String);

impl Page {
    /// A page under a title, with what its bars mean.
    #[must_use]
    pub fn new(title: &str, about: &str) -> Self {
        let (title, about) = (escape(title), escape(about));
        Self(format!(
            "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width,initial-scale=1\">\
             <title>{title}</title><style>{}</style><h1>{title}</h1><p>{about}</p><p class=key><span><i class=hold></i>holds</span> \
             <span><i class=fault></i>paused, cut off, or without a server</span> <span><i class=both></i>two hold at once</span></p>",
            include_str!("timeline.css")
        ))
    }

    /// A table, its first row the heads; `class` says of a cell whether it is `good`, `bad` or neither.
    pub fn table(&mut self, rows: &[Vec<String>], class: impl Fn(&str) -> &'static str) {
        self.0.push_str("<div class=wide><table>");
        for (at, row) in rows.iter().enumerate() {
            self.0.push_str("<tr>");
            for cell in row {
                let (tag, text) = (if at == 0 { "th" } else { "td" }, escape(cell));
                let _ = write!(self.0, "<{tag} class=\"{}\">{text}</{tag}>", class(cell));
            }
            self.0.push_str("</tr>");
        }
        self.0.push_str("</table></div>");
    }

    /// What follows is about this.
    pub fn section(&mut self, title: &str, about: &str) {
        let _ = write!(self.0, "<h2>{}</h2><p>{}</p>", escape(title), escape(about));
    }

    /// A time line, and what was said on it.
    pub fn scene(&mut self, scene: &Scene) {
        let ends = scene.holds.iter().map(|(_, _, to)| *to).chain(scene.faults.iter().map(|(_, _, to, _)| *to));
        let end = ends.chain(scene.notes.iter().map(|(at, _)| *at)).max().unwrap_or(scene.from);
        let long = Duration::from_micros(end.saturating_sub(scene.from));
        let share = |micros: u64| Duration::from_micros(micros).as_secs_f64() / long.as_secs_f64().max(1e-6) * 100.0;
        let bar = |class: &str, from: u64, to: u64, what: &str| {
            let (left, wide) = (share(from.saturating_sub(scene.from)), share(to.saturating_sub(from)));
            format!("<i class={class} style=\"left:{left:.2}%;width:{wide:.2}%\" title=\"{what}\"></i>")
        };
        let _ = write!(self.0, "<h3>{}</h3><div class=line>", escape(scene.title));
        for (lane, name) in scene.lanes.into_iter().enumerate() {
            let _ = write!(self.0, "<span>{}</span><div class=lane>", escape(name));
            for (_, from, to, what) in scene.faults.iter().filter(|(on, ..)| *on == lane) {
                self.0.push_str(&bar("fault", *from, *to, what));
            }
            for (_, from, to) in scene.holds.iter().filter(|(on, ..)| *on == lane) {
                self.0.push_str(&bar("hold", *from, *to, "holds"));
            }
            if let Some((from, to)) = scene.both() {
                self.0.push_str(&bar("both", from, to, "two hold at once"));
            }
            self.0.push_str("</div>");
        }
        let end = long.as_secs_f64();
        let _ = write!(self.0, "<div class=ends><span>0 s</span><span>{end:.2} s</span></div></div><ol>");
        let mut notes: Vec<_> = scene.notes.iter().map(|(at, what)| (*at, "", escape(what))).collect();
        if let Some((from, to)) = scene.both() {
            notes.push((from, "bad", format!("two hold at once, for {}", seconds(to - from))));
            notes.sort_by_key(|(at, ..)| *at);
        }
        for (at, class, what) in notes {
            let at = seconds(at.saturating_sub(scene.from));
            let _ = write!(self.0, "<li class=\"{class}\"><b class=\"{class}\">{at}</b>{what}</li>");
        }
        self.0.push_str("</ol>");
    }

    /// The whole of it.
    #[must_use]
    pub fn finish(self) -> String {
        self.0 + "</html>\n"
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
