//! `spindle completions` and `spindle man`: what shells and `man` know of the verbs, made of their declarations.

mod completions;
mod man_page;
mod man_pages;

pub use completions::{CompletionsArguments, completions};
pub use man_pages::{ManArguments, man};
