//! Kinds of DR groups and of paired sites: conditions, then occurrences.

use super::{
    Haste::{Morning, NoStep, Now},
    ReportedKind, occurrence,
    server_kinds::condition,
};
use report::Severity::{Error, Note, Warning};

const STAYS: &str = "It stays so.";

/// Those of one topic from mild to bad.
pub(super) const DR_KINDS: &[ReportedKind] = &[
    condition(
        "dr_site_not_reached",
        "dr_site",
        Warning,
        "A paired site has not been reached for 3 s.",
        [
            "Mail goes on where this site serves it, unless a DR group says otherwise. A disaster at one site now would lose what the other does not have.",
            "It connects again and again, at most 10 s apart. For each group it keeps up to 4 GiB of the log; beyond that it finds in the map what changed. It never copies everything again.",
            "Until the site is connected.",
            "Look at the line and at the other server: 'spindle dr status'. If that site is lost, 'spindle failover GROUP --unplanned' says here what may be lost, and changes nothing.",
        ],
        Morning,
    ),
    condition(
        "dr_alone",
        "dr",
        Warning,
        "A DR group in sync has answered its hosts without the other site for 3 s.",
        [
            "Mail goes on. A disaster here now would lose what hosts were answered since then.",
            "It brings the other site what it lacks once that is connected, while hosts are served, and then waits for it again.",
            "Until both sites are alike: 'spindle dr status' has the time left of a merge.",
            "Bring the line or the other server back, if it is not reached. During a merge, nothing.",
        ],
        Morning,
    ),
    condition(
        "dr_witness_lost",
        "dr",
        Warning,
        "The witness of a DR group has not answered its primary for 10 s.",
        [
            "Mail goes on. If this site is lost now, the other one does not take over without a person.",
            "It asks again each second. Both sites go on by what they promised each other, as long as they are connected.",
            "Until the witness answers.",
            "Look at the third machine: 'spindle witness' runs there, and both sites reach it.",
        ],
        Morning,
    ),
    condition(
        "dr_behind",
        "dr",
        Warning,
        "The other site of a DR group is further behind than the mode allows, or passes do not catch up.",
        [
            "Mail goes on; hosts wait if the group pushes back. A disaster here now would lose more than was agreed.",
            "It goes on by passes, which send a changed block once however often it was written.",
            "Until the other site is within the bounds.",
            "Give the line more bandwidth, or the group wider bounds. If it happens at the same hours each day, hosts then write faster than the line carries.",
        ],
        Morning,
    ),
    condition(
        "dr_stopped",
        "dr",
        Warning,
        "A DR group has no connection although its site may be reached: it is suspended or refused, the other site lacks it, or the pairing has ended.",
        [
            "Mail goes on where the group serves. The other site falls behind, without an end.",
            "It tries again with each connection, and keeps what is here.",
            "Until both sites have the group, and agree on it.",
            "Do what the reason asks for: 'spindle dr status' at both sites shows what each has.",
        ],
        Morning,
    ),
    condition(
        "dr_diverged",
        "dr",
        Error,
        "Both sites of a DR group have answered writes that the other lacks.",
        [
            "Mail goes on where hosts are served, and each site has a history of its own. The writes of one become a fork; nothing is deleted.",
            "It sends nothing before a person has chosen.",
            "Until a person says whose writes count.",
            "Say 'spindle dr give-way GROUP' at the site whose writes are to become a fork. The longer both go on, the more there is to sort out.",
        ],
        Now,
    ),
    condition(
        "dr_hosts_wait",
        "dr_hosts",
        Error,
        "A DR group is served nowhere, as far as this site knows: it is primary here and waits for the other site, or both are secondary.",
        [
            "Mail on the group's volumes stands still.",
            "It serves them as soon as it is sure to have every answered write.",
            "Until the other site is connected and has agreed, or a person decides.",
            "Bring the line or the other server back. If that site is lost, 'spindle failover GROUP --unplanned' says here what may be lost, and changes nothing.",
        ],
        Now,
    ),
    condition(
        "dr_first_copy",
        "dr_copy",
        Note,
        "The first copy of a DR group is not complete.",
        [
            "Mail goes on at the primary, and may be slower. The other site cannot take over yet.",
            "It copies what is mapped, in passes, while hosts are served.",
            "Until the other site has all of it: 'spindle dr status' has the time left.",
            "Nothing.",
        ],
        NoStep,
    ),
    condition(
        "dr_record_damaged",
        "dr_record",
        Error,
        "The record of a DR group in a pool cannot be used.",
        [
            "Mail on the whole pool stands still: its volumes may be those of a secondary, and old.",
            "It serves the other pools.",
            "Until the record is removed.",
            "Look at the other site first. If the group is served there, leave it so. Otherwise 'spindle dr remove GROUP' serves the volumes as they are here.",
        ],
        Now,
    ),
    condition(
        "dr_fork_kept",
        "dr_fork",
        Note,
        "Volumes beside a DR group keep writes that this site gave up for the other site's.",
        [
            "Nothing changes. They take room in the pool.",
            "It keeps them, and exports them to nobody.",
            "Until they are deleted.",
            "See whether they have mail that the group lacks, then 'spindle dr fork drop NAME'; 'spindle dr fork list' has what is in them.",
        ],
        Morning,
    ),
    condition(
        "dr_merge_waits",
        "dr_merge",
        Note,
        "A merge of a DR group waits for its turn or its window, or nothing of it moves.",
        [
            "Mail goes on. The other site falls behind until the merge has ended; a disaster here now would lose what it lacks.",
            "It begins when the groups before it have merged, or when its window opens.",
            "Until the merge goes on.",
            "Nothing, if it may wait. 'spindle dr resume GROUP --merge at-once' begins it now; if nothing moves, look at the line and at the other pool.",
        ],
        Morning,
    ),
    occurrence(
        "dr_suspended",
        Note,
        "Somebody suspended a DR group: the other site gets nothing.",
        [
            "Mail goes on. A disaster here would lose what hosts write from now on.",
            "It keeps up to 4 GiB of the log for the other site; beyond that it finds in the map what changed. It never copies everything again.",
            "Until it is resumed, also over restarts.",
            "Say 'spindle dr resume GROUP' once it may go on.",
        ],
        Morning,
    ),
    occurrence(
        "dr_resumed",
        Note,
        "Somebody resumed a DR group that was suspended.",
        [
            "Mail goes on, and may be slower while the other site gets what it lacks.",
            "It merges in its turn, or in the window that was named, while hosts are served.",
            STAYS,
            "Nothing.",
        ],
        NoStep,
    ),
    occurrence(
        "dr_offer_undone",
        Note,
        "Another site asked for replicas of a DR group and did not make the group: they were removed.",
        [
            "Nothing changes: nothing had been copied.",
            "It removes the group here and its empty replicas, once the other site is connected and has not named it for 10 minutes.",
            STAYS,
            "Say 'spindle dr create' at that site again, if the group is wanted.",
        ],
        NoStep,
    ),
    occurrence(
        "dr_took_over",
        Note,
        "A DR group became primary here by a planned failover.",
        [
            "Hosts find their disks here. Nothing that they were answered for is lost.",
            "It serves the group's hosts, and sends the other site what they write.",
            STAYS,
            "Nothing.",
        ],
        NoStep,
    ),
    occurrence(
        "dr_promoted",
        Warning,
        "A DR group became primary here without the other site: an unplanned failover.",
        [
            "Hosts find their disks here. What the other site had answered and not sent is not here.",
            "It serves the group's hosts. When the other site returns, that follows, and keeps its own writes as a fork.",
            STAYS,
            "Make sure that the other site serves no host. Once it is back, 'spindle dr status' there names its fork.",
        ],
        Morning,
    ),
    occurrence(
        "dr_handed_over",
        Note,
        "A DR group was handed to the other site by a planned failover.",
        [
            "Hosts find their disks at the other site. Nothing that they were answered for is lost.",
            "It follows the other site, and serves the group to no host.",
            STAYS,
            "Nothing.",
        ],
        NoStep,
    ),
    occurrence(
        "dr_stood_down",
        Warning,
        "A DR group was primary here, and the other site has the right to write: this one follows from now on.",
        [
            "Hosts that were connected here are disconnected; the other site serves them.",
            "What it has of its own becomes a fork, and it gets what the other site has.",
            STAYS,
            "See that hosts connect at the other site, and whether 'spindle dr status' here names a fork.",
        ],
        Morning,
    ),
    occurrence(
        "dr_failover_asked",
        Note,
        "Somebody asked for a failover of a DR group.",
        [
            "Its hosts connect again, if the failover is done.",
            "It does it, or refuses it and says why to the one who asked.",
            STAYS,
            "Nothing.",
        ],
        NoStep,
    ),
    occurrence(
        "dr_merged",
        Note,
        "A merge of a DR group has ended: the side that was behind has what it lacked.",
        ["Nothing changes.", "It streams what hosts write.", STAYS, "Nothing."],
        NoStep,
    ),
    ReportedKind {
        covered_by: Some("dr"),
        ..occurrence(
            "dr_in_sync",
            Note,
            "A DR group is in sync with the other site, after it was alone.",
            [
                "Mail goes on. A disaster here would lose nothing that hosts were answered for.",
                "It answers writes once both sites have them.",
                STAYS,
                "Nothing.",
            ],
            NoStep,
        )
    },
    ReportedKind {
        covered_by: Some("dr_copy"),
        ..occurrence(
            "dr_first_copy_complete",
            Note,
            "The first copy of a DR group is complete.",
            [
                "Mail goes on. The other site can take over from now on.",
                "It streams what hosts write.",
                STAYS,
                "Nothing.",
            ],
            NoStep,
        )
    },
    occurrence(
        "dr_site_paired",
        Note,
        "Another site presented a token of this one, or this one presented a token there.",
        [
            "Nothing changes.",
            "It keeps a connection to that site, which may make replicas in the pools here.",
            "Until the pairing is ended: 'spindle dr unpair SITE'.",
            "If it is none of yours, end the pairing at once.",
        ],
        Morning,
    ),
    occurrence(
        "dr_site_unpaired",
        Note,
        "The pairing with another site was ended here.",
        [
            "Mail goes on. Groups with that site are not copied any more.",
            "It refuses that site, and keeps what is here.",
            STAYS,
            "Say 'spindle dr unpair' at the other site, too.",
        ],
        NoStep,
    ),
];
