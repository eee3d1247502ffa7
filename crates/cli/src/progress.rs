//! Progress of a run: a bar on a terminal, a line every few seconds elsewhere.

use crate::console::Console;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::duration::show_duration;
use runs::observer::{ProgressDisplay, ProgressStatus, RunObserver};
use std::time::Duration;

/// Between two lines where no bar can move.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// Steps of the bar.
const STEPS: u64 = 1_000;

/// Draws progress. The bar is removed when this is dropped.
pub struct ProgressView {
    console: Console,
    bar: Option<ProgressBar>,
    phase: String,
    /// Time of the last line, since the run began.
    said_at: Option<Duration>,
}

impl ProgressView {
    /// A view on standard error; silent if the console is.
    pub fn new(console: &Console) -> Self {
        let bar = (console.live && !console.is_quiet()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr_with_hz(5));
            bar.set_style(style(console));
            bar
        });
        Self { console: console.clone(), bar, phase: String::new(), said_at: None }
    }

    fn show(&mut self, elapsed: Duration, status: &ProgressStatus) {
        let is_new = self.phase != status.phase;
        // A phase that was seen for the first time cannot be done: the share is still the last one's.
        let stale = is_new && status.fraction >= 1.0;
        let status =
            &ProgressStatus { fraction: if stale { 0.0 } else { status.fraction }, ..status.clone() };
        self.phase.clone_from(&status.phase);
        if let Some(bar) = &self.bar {
            // The share first: each call draws, and no phase should be seen with the share before it.
            bar.set_position((status.fraction.clamp(0.0, 1.0) * STEPS as f64) as u64);
            bar.set_prefix(status.phase.clone());
            bar.set_message(figures(status));
            return;
        }
        let is_due = self.said_at.is_none_or(|at| elapsed >= at + LINE_INTERVAL);
        if is_new || is_due {
            self.said_at = Some(elapsed);
            self.console.say_progress(&line(elapsed, status));
        }
    }
}

impl ProgressDisplay for ProgressView {
    /// Above a bar, lines are printed after the bar shows the new status, or it would be drawn again with the
    /// old one. In plain text the order is that of events: a phase's first status comes after the lines
    /// that begin it, any other before the lines that may end it.
    fn tell(&mut self, elapsed: Duration, status: Option<&ProgressStatus>, lines: &[&str]) {
        let begins = status.is_some_and(|status| status.phase != self.phase);
        let lines_first = self.bar.is_none() && begins;
        if lines_first {
            lines.iter().for_each(|line| self.say(line));
        }
        match (status, &self.bar) {
            (Some(status), _) => self.show(elapsed, status),
            (None, Some(bar)) => bar.finish_and_clear(),
            (None, None) => {}
        }
        if !lines_first {
            lines.iter().for_each(|line| self.say(line));
        }
    }

    /// Prints a line above the bar.
    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.console.say_progress(text)),
            None => self.console.say_progress(text),
        }
    }
}

impl RunObserver for Console {
    fn say(&self, line: &str) {
        Self::say(self, line);
    }

    fn say_always(&self, line: &str) {
        Self::say_always(self, line);
    }

    fn warn(&self, line: &str) {
        Self::warn(self, line);
    }

    fn progress(&self) -> Box<dyn ProgressDisplay> {
        Box::new(ProgressView::new(self))
    }
}

impl Drop for ProgressView {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(console: &Console) -> ProgressStyle {
    let bar_width = (console.width / 4).clamp(8, 24);
    let colour = if console.colour { ".green" } else { "" };
    let template = format!("{{prefix:8}} {{bar:{bar_width}{colour}}} {{percent:>3}} %  {{wide_msg}}");
    ProgressStyle::with_template(&template).expect("the template is fixed").progress_chars("━╸ ")
}

/// One plain line: `  42 s  measure  70 %  812 reads/s  18 s left`.
fn line(elapsed: Duration, status: &ProgressStatus) -> String {
    let percent = (status.fraction.clamp(0.0, 1.0) * 100.0) as u32;
    format!("{:>9}  {:<8} {percent:>3} %  {}", show_duration(elapsed), status.phase, figures(status))
        .trim_end()
        .to_owned()
}

fn figures(status: &ProgressStatus) -> String {
    let mut figures = status.figures.clone();
    if let Some(left) = status.left {
        figures.push(format!("{} left", show_duration(Duration::from_secs(left.as_secs().max(1)))));
    }
    figures.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_says_phase_share_figures_and_time_left() {
        let status = ProgressStatus {
            phase: "measure".to_owned(),
            fraction: 0.705,
            figures: vec!["812 reads/s".to_owned(), "read 3.1 ms".to_owned()],
            left: Some(Duration::from_millis(18_200)),
        };
        assert_eq!(
            line(Duration::from_secs(42), &status),
            "     42 s  measure   70 %  812 reads/s  read 3.1 ms  18 s left"
        );
    }
}
