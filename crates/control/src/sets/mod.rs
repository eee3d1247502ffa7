//! Sets of volumes that are backed up together (`docs/protect.md`). The server keeps those that are frozen by nothing, or at
//! sockets of its host; an agent on the mail host keeps the others, and asks the API for what this server's keepers ask the
//! pools themselves.
//!
//! Reading order: [`wanted`] (the sets of a site file, checked) and [`set_texts`] (in words), [`points`] (points of backups in the pools), `pools` (what a
//! keeper asks of them), [`locks`] (what nobody may delete), [`catalogues`] (files of the state folder), [`served_set`] (what others see, and their orders),
//! [`keeper`] (the flows), `standing`, `following` and `replica_verifying` (of sets whose volumes lie in DR
//! groups).

pub mod catalogues;
mod following;
pub mod keeper;
pub mod locks;
pub mod points;
mod pools;
mod replica_verifying;
pub mod served_set;
pub mod set_texts;
mod standing;
pub mod wanted;

pub use catalogues::{CatalogueFiles, FolderCatalogues, catalogues_in, keep_copy};
pub use served_set::{
    RebuiltCatalogue, ServedSet, SetKeeping, SetOrder, SetOrderAnswer, SetOrderRefusal, SetOrders,
    SetReplication, SetRole,
};
pub use wanted::{RestoreHooks, WantedFreeze, WantedSet, wanted_sets};
