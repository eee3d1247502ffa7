//! Backups opened on this host: `protect mount`, `open`, `close` and `find`.
//!
//! Three processes have a part in one that is open. The *command* checks, starts the *keeper*, waits until the filesystems are
//! mounted, and ends. The keeper serves the images and ends all of it at its time. The *watcher* is tied to the keeper, and takes
//! everything away if that is killed. All of them, and later commands, know it by its file (`recovery::opening`).
//!
//! Reading order: `arguments`, `place` (the folder of the files), `on_server` (clones and exports), `taking_away`, `images`
//! (volumes reached over NBD, as files), `mount`, `open`, `close`, `find`.

pub mod arguments;
mod close;
mod find;
mod images;
mod keeper;
mod mount;
mod on_server;
mod open;
mod place;
mod taking_away;

pub use close::close;
pub use find::find;
pub use mount::mount;
pub use open::open;
