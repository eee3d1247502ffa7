//! The program as its users meet it: the built binary, its words, its exit codes, what it leaves.

// Tests play the user: they start programs and look at files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod answers;
mod api_tls;
mod book;
mod cleaning;
mod copy_verbs;
mod cut_verbs;
mod databases;
mod drives;
mod drives_changed;
mod drives_found;
mod early_ends;
mod elsewhere;
mod events;
mod exported;
mod exports;
mod exports_iscsi;
mod exports_of_pools;
mod exports_tls;
mod filling;
mod group_verbs;
mod guest;
mod helps;
mod identities;
mod judged_api;
mod judged_by_ceph;
mod judged_by_linux;
mod judged_by_qemu;
mod judged_changes;
mod judged_exports;
mod judged_power;
mod judged_rollback;
mod judged_rows;
mod killed_server;
mod line_relay;
mod link_test;
mod mail_files;
mod mail_host;
mod moved_beside_hosts;
mod next_steps;
mod notifiers;
mod online_groups;
mod online_pools;
mod online_verbs;
mod opened_backups;
mod opened_mail;
mod ordered_server;
mod out_of_space;
mod own_server;
mod paper_plans;
mod planned_and_served;
mod plans;
mod pool_backups;
mod pool_domains;
mod pool_drives;
mod pool_levelling;
mod pool_sets;
mod pool_verbs;
mod pools;
mod pristine;
mod process_limits;
mod protect_run;
mod qemu_io;
mod raw_initiator;
mod records;
mod refusals;
mod refused_places;
mod rehearsals;
mod remote_drives;
mod restored_sets;
mod salvage;
mod searches;
mod served_transfers;
mod sets_kept;
mod sets_verified;
mod settings;
mod sites;
mod sites_recovered;
mod sites_served;
mod snapshot_notes;
mod spindle;
mod step_times;
mod storage;
mod sweeps;
mod tokens_of_pools;
mod top;
mod two_sites;
mod two_sites_auto;
mod two_sites_etcd;
mod two_sites_events;
mod two_sites_file;
mod two_sites_hosts;
mod two_sites_linux;
mod two_sites_periodic;
mod two_sites_pools;
mod two_sites_replica;
mod two_sites_returned;
mod two_sites_rows;
mod two_sites_suspended;
mod two_sites_verified;
mod two_sites_withheld;
mod verb_table;
mod verify;
mod verify_counts;
mod verify_sources;
mod verify_torn;
mod volume_diff;
mod volume_limits;
mod volumes;
mod withheld;
mod without_io_uring;
mod witness;
mod write_cache;

/// The engine tests' own mailbox database on a simulated drive whose power is cut.
#[allow(dead_code)]
#[path = "../../../maildb/tests/it/model.rs"]
mod model;
#[allow(dead_code)]
#[path = "../../../maildb/tests/it/simulated.rs"]
mod simulated;
#[allow(dead_code)]
#[path = "../../../maildb/tests/it/torn/tearing.rs"]
mod tearing;
