//! Statements of a hook on its output: `spindle-consistency: filesystem`.

use crate::backup::Consistency;
use world::ProgramText;

/// Start of the line by which a hook says what a cut is worth.
const CONSISTENCY: &str = "spindle-consistency:";

/// The worth of a cut in the words of a hook; the later is worth less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookStatement {
    Application,
    Filesystem,
    /// The hook freezes nothing: it only prepares the cut.
    Nothing,
}

impl HookStatement {
    /// The least of a hook's statements; `None` if it made none.
    ///
    /// # Errors
    /// An unknown word, or an output that was not kept whole: it may have said anything.
    pub fn of_output(output: &ProgramText) -> Result<Option<Self>, String> {
        if output.dropped_bytes > 0 {
            let bytes = output.bytes.len() as u64 + output.dropped_bytes;
            let kept = output.bytes.len() >> 10;
            return Err(format!("its output of {bytes} bytes is longer than {kept} KiB; let it print less"));
        }
        let text = String::from_utf8_lossy(&output.bytes);
        let mut least = None;
        for word in text.lines().filter_map(|line| line.trim().strip_prefix(CONSISTENCY)) {
            let statement = match word.trim() {
                "application" => Self::Application,
                "filesystem" => Self::Filesystem,
                "none" => Self::Nothing,
                other => {
                    let known = "application, filesystem and none are known";
                    return Err(format!("it says {CONSISTENCY} {other:?}; {known}"));
                }
            };
            least = least.max(Some(statement));
        }
        Ok(least)
    }

    /// The worth of a frozen thing; `None` if nothing was frozen.
    pub fn consistency(self) -> Option<Consistency> {
        match self {
            Self::Application => Some(Consistency::Application),
            Self::Filesystem => Some(Consistency::Filesystem),
            Self::Nothing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_statement_counts_and_nonsense_is_refused() {
        let check = |output: &str, expected: Result<Option<HookStatement>, &str>| {
            let output = ProgramText { bytes: output.as_bytes().to_vec(), dropped_bytes: 0 };
            let found = HookStatement::of_output(&output);
            assert_eq!(found.as_ref().map(|&found| found).map_err(|error| &**error), expected);
        };
        check("quiet now\n", Ok(None));
        check("a spindle-consistency: none\n", Ok(None));
        check("spindle-consistency: application\r\n", Ok(Some(HookStatement::Application)));
        let two = "spindle-consistency: filesystem\nspindle-consistency:application";
        check(two, Ok(Some(HookStatement::Filesystem)));
        check("spindle-consistency: none", Ok(Some(HookStatement::Nothing)));
        let unknown = "it says spindle-consistency: \"good\"; application, filesystem and none are known";
        check("spindle-consistency: good", Err(unknown));
        let long = ProgramText { bytes: vec![b'x'; 64 << 10], dropped_bytes: 1 };
        let refusal = "its output of 65537 bytes is longer than 64 KiB; let it print less";
        assert_eq!(HookStatement::of_output(&long), Err(refusal.to_owned()));
    }
}
