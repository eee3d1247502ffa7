//! The planning room: from the users of a mail system to the storage under it, and what is wrong with one.
//!
//! Pure arithmetic: no clock, no files, no randomness. What is asked comes in as values or as the text of a
//! file, what follows goes out as values, and every number on the way names its formula and its source.
//!
//! Read in this order: [`units`] and [`figure`] are what numbers are made of; [`rules`] has the figures of a mail
//! server, [`profile`] its users; [`demand`] derives what they need, and [`derivation`] remembers how. [`catalogue`]
//! knows what can be bought, [`fit`] ranks it, [`layout`] divides it into groups and volumes, [`site`] writes that
//! down, and [`advice`] criticises it. [`answer`] is all of it together, as it is told.

pub mod advice;
pub mod answer;
pub mod catalogue;
pub mod demand;
pub mod derivation;
pub mod figure;
pub mod fit;
pub mod layout;
pub mod profile;
pub mod rules;
pub mod site;
mod toml_text;
pub mod units;
