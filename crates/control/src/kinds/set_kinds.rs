//! Kinds of sets that are backed up: conditions. What happens once is a note or a warning.

use super::{
    Haste::{Morning, Now},
    ReportedKind,
    server_kinds::condition,
};
use report::Severity::{Note, Warning};

pub(super) const SET_KINDS: &[ReportedKind] = &[
    condition(
        "set_failing",
        "set_rounds",
        Warning,
        "A backup of a set failed.",
        [
            "Nothing changes for mail; the newest backup becomes older.",
            "It tries again after a minute, then after twice as long, at most 15 minutes. It deletes no backup meanwhile but those that are too old by law.",
            "Until a backup was made.",
            "Do what the reason asks for: room in a pool, or a volume that the set names.",
        ],
        Morning,
    ),
    condition(
        "set_waiting",
        "set_pools",
        Warning,
        "A set waits for a pool: whether a backup was made, or is deleted, is not known without it.",
        [
            "Nothing changes for mail. If a backup had begun, no other is made before the pool answers.",
            "It asks again every 15 s.",
            "Until the pool answers.",
            "Bring the pool back: 'spindle pool list' says why it is not open.",
        ],
        Morning,
    ),
    condition(
        "set_has_strays",
        "set_strays",
        Note,
        "Snapshots with notes of a set belong to no backup: their catalogue does not have them, and some are missing.",
        [
            "Nothing changes for mail; the snapshots take room.",
            "It leaves them alone.",
            "Until they are deleted.",
            "Delete them if nobody needs them: 'spindle volume delete POOL/VOLUME@SNAPSHOT'.",
        ],
        Morning,
    ),
    condition(
        "set_left_points",
        "set_left",
        Warning,
        "Snapshots of a deleted or failed backup could not be deleted.",
        [
            "Nothing changes for mail; the snapshots take room.",
            "It tries again every 15 s.",
            "Until they are deleted.",
            "Do what the reason asks for: a snapshot that is exported stays until it is not.",
        ],
        Morning,
    ),
    condition(
        "set_full",
        "set_room",
        Warning,
        "A pool of a set is 95 % full, and none of the set's backups may go.",
        [
            "At 100 % writes are refused, and mail databases on the pool stop: that may be hours away.",
            "It makes backups as long as there is room.",
            "Until there is room, or a backup may go.",
            "Release holds ('spindle protect release'), delete other snapshots, or add a drive.",
        ],
        Now,
    ),
    condition(
        "set_unverified",
        "set_verification",
        Warning,
        "No backup of a set was verified for 24 h, though one waits for it.",
        [
            "Nothing changes for mail; whether the newest backups can be restored is not known.",
            "It goes on trying, and makes backups as before. The last one that is proven stays.",
            "Until a backup was verified.",
            "Do what the reason asks for: the server needs NBD ([serve] nbd), and with elsewhere = true another machine has to run 'spindle protect verify --due'.",
        ],
        Morning,
    ),
    condition(
        "set_undrilled",
        "set_drill",
        Warning,
        "No drill of a set was good for 35 days, or for two of its periods if those are longer.",
        [
            "Nothing changes for mail; whether and how fast a backup comes back is not known.",
            "It holds the next drill when it is due.",
            "Until a drill was good.",
            "Hold one now, and see what it says: 'spindle protect drill'.",
        ],
        Morning,
    ),
    condition(
        "set_unreleased",
        "set_logs",
        Warning,
        "A backup of a set is proven, and logs that it has could not go.",
        [
            "Nothing changes for mail until the volume of the logs is full; then it stands still.",
            "It asks the mail server again every 5 minutes.",
            "Until the mail server answers, or a newer backup is proven and its logs have gone.",
            "Do what the reason asks for: the run with --control must serve its socket, and the volume of its logs must take writes.",
        ],
        Morning,
    ),
    condition(
        "set_uncopied",
        "set_vault",
        Warning,
        "A backup of a set waits for its copy in the vault for more than 24 h.",
        [
            "Nothing changes for mail; if the pools are lost, what came after the last copy is lost as well.",
            "It tries again after an hour, then after twice as long, up to a day.",
            "Until the newest backup is copied.",
            "Do what the reason asks for: the vault is made by 'spindle protect vault init', and the server needs its password and NBD ([serve] nbd). 'spindle protect vault copy' copies now.",
        ],
        Morning,
    ),
    condition(
        "set_not_kept",
        "set_catalogue",
        Warning,
        "The catalogue of a set cannot be read or written, so no backups are made.",
        [
            "Nothing changes for mail; the newest backup becomes older, and none is deleted.",
            "It opens the catalogue again every 30 s.",
            "Until it can be used.",
            "Do what the reason asks for; the catalogues are in the folder sets of the server's state folder. One that is lost is made again from the pools' notes.",
        ],
        Morning,
    ),
];
