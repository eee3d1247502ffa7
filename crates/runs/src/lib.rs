//! Runs of the performance test: from the settings of a caller to results on disk.
//!
//! A [`RunRequest`](request::RunRequest) is completed from a [`site`] or a published [`setup`](mod@setup). A [`survey`]
//! collects the facts of its locations; [`acceptance`] refuses those that must not be written. [`planning`] turns both
//! into a [`PlannedRun`](planning::PlannedRun) ([`layout`], [`manifest`], [`pristine`], [`sizing`]), which [`summary`]
//! shows. [`execution`] makes it so: [`stage`], [`copies`], [`performance`], [`record_writer`]. [`series`] runs a sweep,
//! [`pools`] a run on Spindle's own array, [`cleaning`] removes what runs made.
//!
//! Invariants:
//!
//! 1. Nothing is written before the whole run is planned; a refused run changes nothing.
//! 2. Nothing here prints, reads the environment or ends the process: messages go to a
//!    [`RunObserver`](observer::RunObserver), and a [`StopSwitch`](stop_switch::StopSwitch) ends a run early.
//! 3. No protocol is known here: a [`RemoteResolver`](remote::RemoteResolver) reaches devices of other machines.

pub mod acceptance;
pub mod allowance;
pub mod cleaning;
pub mod control_sockets;
pub mod copies;
pub mod crash_copies;
pub mod document;
pub mod execution;
pub mod layout;
pub mod location;
pub mod machine;
pub mod manifest;
pub mod observer;
pub mod outputs;
pub mod performance;
pub mod planning;
pub mod pools;
pub mod pristine;
pub mod record_reader;
pub mod record_writer;
pub mod remote;
pub mod request;
pub mod run_facts;
pub mod series;
pub mod setup;
pub mod site;
pub mod sizing;
pub mod stage;
pub mod stop_switch;
pub mod storage_endpoint;
pub mod summary;
pub mod survey;
pub mod sweep;
pub mod text_file;
