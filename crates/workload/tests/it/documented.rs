//! Documents of fixed results.

use crate::ami_2008::ami_2008;
use expect_test::expect;
use report::{
    Block,
    text::{self, TextOptions},
};
use workload::{
    database::{
        document::document,
        load::operation::{FailureKind, RunFailure},
        plan::LoadPlan,
        results::RunResults,
    },
    verdict::RunVerdict,
};

fn findings(results: &RunResults) -> Vec<String> {
    let document = document(results, &RunVerdict::of(results).unwrap());
    document.findings.iter().map(|f| format!("{}: {}", f.severity.word(), f.text)).collect()
}

#[test]
fn the_document_of_a_passed_run() {
    let results = ami_2008();
    let mut document = document(&results, &RunVerdict::of(&results).unwrap());
    // The report crate tests the drawing of charts.
    for section in &mut document.sections {
        section.blocks.retain(|block| !matches!(block, Block::LineChart(_) | Block::Distribution(_)));
    }
    expect![[r#"
        Spindle performance test
        exchange-2007, 1 database of 129 GiB, 600 mailboxes at 0.45 IOPS
        HANUMAN · 2008-09-24 13:06:51 UTC

        ▌ PASS  Performance test, 2 h measured
        ▌ At least ≈ 570 mailboxes of 150 messages a day within 20 ms: 331 database IOPS within every
        ▌ limit, and every page and record intact.

        Mailboxes of 150 messages a day      ≈ 570  (within 20 ms; at least: no higher rate was tried)
        Database I/O                         331 IOPS  (target 270)
        Database read                        18.30 ms  (99 % within 54.90 ms)
        Log write                            0.30 ms  (99 % within 0.90 ms)
        Operation, from intended start: p99  36.00 ms  (includes the wait to start)
        Records checked                      550,000  (read back and right)
        Closest to its limit                 92 %  (database read latency, average: 18.30 of 20 ms)

        Findings
        ────────────────────────────────────────────────────────────────────────────────────────────────
        note     The profile's figures for page_bytes, compressible_percent, log_file_bytes,
                 checkpoint_depth_bytes, scan_batch_bytes, lazy_commit_delay_ms are recalled or assumed,
                 not read in a source.

        Test summary
        ────────────────────────────────────────────────────────────────────────────────────────────────
        Overall result    Pass
        Machine           HANUMAN
        Operating system  Linux
        Began (UTC)       2008-09-24 10:48:51
        Ended (UTC)       2008-09-24 13:06:51
        Measured          2 h 0 min
        Program           spindle 0.1.0
        Profile           exchange-2007  (8 KiB pages, 40/30/5/25 insert/delete/replace/read, lazy commits 55 %: the
                          StorTrends report)

        Result  Limit on                             Measured       Limit  Source
        ──────  ───────────────────────────────────  ────────  ──────────  ───────────────────────────────────────────
        pass    Database read latency, average       18.30 ms  ≤ 20.00 ms  AMI 2008, test log of 9/24/2008 10:48:54
                                                                           AM; Dell 2010, section 2
        pass    Database read latency, worst window  36.60 ms  ≤ 50.00 ms  AMI 2008, test logs of 9/24/2008 10:48:54
                                                                           AM (performance) and 10:01:07 PM (stress),
                                                                           over its 15-s samples
        pass    Log write latency, average            0.30 ms  ≤ 10.00 ms  AMI 2008, test log of 9/24/2008 10:48:54
                                                                           AM; Dell 2010, section 2
        pass    Log write latency, worst window       0.60 ms  ≤ 50.00 ms  AMI 2008, test logs of 9/24/2008 10:48:54
                                                                           AM (performance) and 10:01:07 PM (stress),
                                                                           over its 15-s samples
        pass    Page-fault stalls a second, average   0.00 /s   ≤ 1.00 /s  exchangemaster.wordpress.com 2017/07/12:
                                                                           average at most 1; AMI 2008's stress run
                                                                           passed with an average of 0.053 and a
                                                                           maximum of 23
        pass    Transactional I/O, share of target    122.8 %   ≥ 100.0 %  AMI 2008, report, "Achieved I/O per Second"
                                                                           above "Target I/O per Second"
        pass    Checksum errors                             0         ≤ 0  AMI 2008, test log: "Verifying database
                                                                           checksums", "Verifying log checksums"
        pass    Wrong or missing records                    0         ≤ 0  Spindle: a record read back must be the
                                                                           record written
        pass    I/O errors                                  0         ≤ 0  Jetstress 2013 Field Guide announcement:
                                                                           one I/O error on any volume fails the test
        pass    Long device operations                      0         ≤ 0  Microsoft, OfficeDocs-Exchange,
                                                                           ha-changes.md: an I/O of more than 41 s
                                                                           restarts the server
        pass    Hung device operations                      0         ≤ 0  Microsoft, OfficeDocs-Exchange,
                                                                           ha-changes.md: an I/O of more than 240 s
                                                                           restarts the server

        Latencies are those of device operations under the database engine. As Jetstress sampled, an
        average is the mean of averages over 15 seconds, so that slow time counts by its length, and a
        maximum is the highest of them. The tables below also have averages over operations and the
        slowest single operations; these are not judged.

        Mailboxes
        ────────────────────────────────────────────────────────────────────────────────────────────────
        The number of mailboxes that the storage supports, with the source of each figure.

                                                                                                              Known
        Figure                                       Value       Source                                       from
        ───────────────────────────────────────────  ──────────  ───────────────────────────────────────────  ────────
        Database I/O within every limit              331.5 IOPS  this run; log and background scan not        measured
                                                                 counted
        I/O of one mailbox of 150 messages a day,    0.480 IOPS  remembered of TechNet's guide to 2007:       recalled
        Exchange Server 2007                                     light 5 sent and 20 received 0.11, average
                                                                 10/40 0.18, heavy 20/80 0.32, very heavy
                                                                 30/120 0.48
        Headroom                                     20 %        Dell 2010, table 16, step 4; AMI 2008        paper
                                                                 states its 0.45 with 20 % headroom
        Mailboxes                                    ≈ 570       I/O within limits / (I/O of one mailbox ×    computed
                                                                 (1 + headroom)), its first two digits,
                                                                 rounded down

        Result: at least ≈ 570 mailboxes of 150 messages a day within 20 ms. It covers the database I/O
        of mailboxes only; plan capacity, processors, memory and the log volume separately.

        Database sizing and throughput
        ────────────────────────────────────────────────────────────────────────────────────────────────
        Achieved database I/O           331.5 IOPS  (reads and writes of databases; log and background scan not
                                        counted)
        Target database I/O             270.0 IOPS
        Mailboxes                       600  (0.45 IOPS each)
        Longest backlog                 31  (operations that had arrived and not begun)
        Databases when measuring began  129.3 GiB
        Databases after the run         130.2 GiB
        Database files                  1
        Making the databases            1 s  (or reading what was there)
        Rate of records made            attached
        Filling the cache               5 min 29 s

        System parameters
        ────────────────────────────────────────────────────────────────────────────────────────────────
        Sessions                       held rate, open loop
        Page cache of a storage group  256 MiB
        Seed                           1

        Profile exchange-2007
        Setting                     Value    Meaning                         Source                         Known from
        ──────────────────────────  ───────  ──────────────────────────────  ─────────────────────────────  ──────────
        page_bytes                  8 KiB    database page: 4, 8 or 32 KiB   commonly given for Exchange    recalled
                                                                             2007
        record_bytes                1000 B   one mail record, all columns    vendor blog (hmlee) on the     documented
                                             together                        operation mix of early
                                                                             Jetstress: 1,000 bytes
        compressible_percent        0 %      bytes of a record's body that   no paper says; storage that    assumed
                                             a compressor can drop           compresses gains nothing
                                                                             unless asked to be given
                                                                             something
        hot_mailbox_percent         100 %    mailboxes that are hot; 100 %   HP EVA8000, "Database Info":   paper
                                             is all alike                    a very random workload,
                                                                             hardly served from a cache;
                                                                             Dell 2010, section 3.1: the
                                                                             I/O pattern is random
        hot_access_percent          100 %    operations that go to hot       as hot_mailbox_percent: all    paper
                                             mailboxes                       mailboxes alike
        insert_percent              40 %     operations that insert a        AMI 2008, report, "Jetstress   paper
                                             record                          System Parameters"
        replace_percent             5 %      operations that seek a record   AMI 2008, report, "Jetstress   paper
                                             and change it                   System Parameters"
        delete_percent              30 %     operations that seek a record   AMI 2008, report, "Jetstress   paper
                                             and delete it                   System Parameters"
        read_percent                25 %     operations that seek a record   AMI 2008, report, "Jetstress   paper
                                             and read it                     System Parameters"
        lazy_commit_percent         55 %     commits that do not wait for    AMI 2008, report, "Jetstress   paper
                                             the log                         System Parameters"
        operations_per_transaction  1        operations between two commits  no paper says; AMI 2008's 104  computed
                                                                             log writes/s at 55 % lazy fit
                                                                             one durable commit a write
        threads_per_group           8        simulated sessions of a         AMI 2008, report, "Jetstress   paper
                                             storage group                   System Parameters": 8 per
                                                                             storage group
        log_buffers                 9000     transaction log buffers, of     AMI 2008, report, "Jetstress   paper
                                             512 bytes each                  System Parameters"
        log_file_bytes              1 MiB    one generation of the           commonly given for Exchange    recalled
                                             transaction log                 2007
        cache_min_bytes             32 MiB   least page cache of one         AMI 2008, report, "Jetstress   paper
                                             database                        System Parameters": 32.0 MB
        cache_max_bytes             256 MiB  most page cache of one          AMI 2008, report, "Jetstress   paper
                                             database                        System Parameters": 256.0 MB
        start_flush_percent         1 %      free share of the cache at      AMI 2008, test log: start 2.6  paper
                                             which eviction starts           MB of 256 MB
        stop_flush_percent          2 %      free share of the cache at      AMI 2008, test log: stop 5.1   paper
                                             which eviction stops            MB of 256 MB
        checkpoint_depth_bytes      20 MiB   log a crash may have to replay  TechNet ee832793 says 20 MB    assumed
                                                                             stand-alone, of Exchange
                                                                             2010; taken for this release,
                                                                             too
        scan_bytes_per_second       0 B      background scan of one          background scanning of         documented
                                             database; 0 is off              databases came with Exchange
                                                                             2010
        scan_batch_bytes            256 KiB  one read of the background      unused while the scan rate is  assumed
                                             scan                            0
        torn_page_protection        0        1: changed pages go to a        open ESE source: pages are     documented
                                             journal before their place      written in place, with no
                                                                             second write; a torn one is
                                                                             found by its checksum
        page_stamps                 1        1: a page read must be the one  Spindle: a lost write must     documented
                                             last written; 2: across         not pass; kept in memory, for
                                             crashes too, ordered with the   ESE's I/O has none (open ESE
                                             log                             source: a page is known by
                                                                             its own checksum)
        coalesce_bytes              512 KiB  longest write of neighbouring   open ESE source, jetapi.cxx:   documented
                                             pages                           512 KiB by default
        lazy_commit_delay_ms        100 ms   longest wait of a lazy commit   no paper says; a lazy commit   assumed
                                             for stable storage              waits for company, not for
                                                                             ever

        Database configuration
        ────────────────────────────────────────────────────────────────────────────────────────────────
        Databases
        Group  Database   Volume             Before      After      Records
        ─────  ─────────  ──────────────  ─────────  ─────────  ───────────
            1  priv1.edb  /mnt/databases  129.3 GiB  130.2 GiB  102,400,000

        Volumes
        Volume          Holds      Reached by          What it is
        ──────────────  ─────────  ──────────────────  ─────────────────────────
        /mnt/databases  databases  io_uring, O_DIRECT  a StorTrends iSCSI volume
        /mnt/logs       logs       io_uring, O_DIRECT  a StorTrends iSCSI volume

        Transactional I/O
        ────────────────────────────────────────────────────────────────────────────────────────────────
        Reads and writes of databases that transactions caused. Writes are done in the background;
        transactions wait for reads and for the log.

                                                                                                        Worst
                                 Rate                Average  Per I/O     p50     p95     p99   p99.9    15 s  Longest
        Volume          I/O        /s  Average size       ms       ms      ms      ms      ms      ms      ms       ms
        ──────────────  ──────  ─────  ────────────  ───────  ───────  ──────  ──────  ──────  ──────  ──────  ───────
        /mnt/databases  reads   170.0         8 KiB   18.300   18.300  14.640  36.600  54.900  91.500  36.600  146.400
        /mnt/databases  writes  161.4       8.8 KiB    2.000    2.000   1.600   4.000   6.000  10.000   4.000   16.000

        Operations
        ────────────────────────────────────────────────────────────────────────────────────────────────
        From the intended start of an operation to the end of its commit, including the wait for a
        session.

                               Rate  Average    p50     p95     p99   p99.9  Longest
        Operation      Count     /s       ms     ms      ms      ms      ms       ms
        ─────────  ─────────  ─────  ───────  ─────  ──────  ──────  ──────  ───────
        Insert       880,000  122.2   12.000  9.600  24.000  36.000  60.000   96.000
        Replace      110,000   15.3   12.000  9.600  24.000  36.000  60.000   96.000
        Delete       660,000   91.7   12.000  9.600  24.000  36.000  60.000   96.000
        Read         550,000   76.4   12.000  9.600  24.000  36.000  60.000   96.000
        All        2,200,000  305.6   12.000  9.600  24.000  36.000  60.000   96.000

        Durable commits                        103.1 /s
        Lazy commits                           126.0 /s
        Write conflicts                        0
        Records read back and correct          550,000
        Page requests answered from the cache  84.7 %
        Pages in one write                     1.10
        Page splits and merges                 140,000 and 0
        Page-fault stalls                      0
        Log record stalls                      0

        Background scan
        ────────────────────────────────────────────────────────────────────────────────────────────────
        Off in this profile: databases were not scanned in the background.

        Log I/O
        ────────────────────────────────────────────────────────────────────────────────────────────────
                            Rate                Average  Per I/O    p50    p95    p99  p99.9  Worst 15 s  Longest
        Volume     I/O        /s  Average size       ms       ms     ms     ms     ms     ms          ms       ms
        ─────────  ──────  ─────  ────────────  ───────  ───────  ─────  ─────  ─────  ─────  ──────────  ───────
        /mnt/logs  reads     0.0             –        –        –      –      –      –      –           –        –
        /mnt/logs  writes  104.4       4.2 KiB    0.300    0.300  0.240  0.600  0.900  1.500       0.600    2.400

        Database I/Os for each log write  3.2  (Jetstress tuned for 8 to 12)
        Log generations filled            3,051
        Log written by transactions       3.0 GiB
        Checkpoints                       3,000

        Total I/O
        ────────────────────────────────────────────────────────────────────────────────────────────────
        All I/O in the measured time. Preparing is zeroing the next log file ahead of its use: no
        transaction waits for it, so its latency is not judged.

                                  Reads  Scan reads  Writes  Preparing  Flushes   Read  Written
        Volume          Role         /s          /s      /s         /s       /s  MiB/s    MiB/s  Errors
        ──────────────  ────────  ─────  ──────────  ──────  ─────────  ───────  ─────  ───────  ──────
        /mnt/databases  database  170.0         0.0   161.4        0.0      0.0   1.33     1.39       0
        /mnt/logs       log         0.0         0.0   104.4        0.0      0.0   0.00     0.43       0

        Slow I/O and the kernel log
        ────────────────────────────────────────────────────────────────────────────────────────────────
        A device operation of more than 41 s is long, of more than 240 s hung, at any time of the run
        (Microsoft, OfficeDocs-Exchange, ha-changes.md: long I/O 41 s, hung I/O 240 s; either restarts
        the server). An episode is a time in which reads or writes took more than 10 times the median of
        their volume, and more than 50 ms (Spindle: a steady load builds no queue of ten times the usual
        latency; and users do not notice waits below 50 ms, the limit of a 15-s average): all such I/Os
        within a second of each other are one episode.

        No device operation was long or hung.

        Episodes of slow I/O by volume
                                                                                   Time in       Longest
                                         Threshold                                episodes       episode    p99  p99.9
        Volume          I/O                     ms  I/Os over it  Episodes               s             s     ms     ms
        ──────────────  ───────────────  ─────────  ────────────  ────────  ──────────────  ────────────  ─────  ─────
        /mnt/databases  database reads           –             0         0            0.00             –  54.90  91.50
        /mnt/databases  database writes          –             0         0            0.00             –   6.00  10.00
        /mnt/logs       log writes               –             0         0            0.00             –   0.90   1.50

        Host
        ────────────────────────────────────────────────────────────────────────────────────────────────
        Processors                      4 processors
        Memory                          10 GiB
        Processor time, Spindle         1.0 %  (of one)
        Processor time, all             0.0 %  (of one)
        Processor time of an operation  32.7 µs
        Memory available, least         9 GiB
        Memory of Spindle, most         0 B

        Verification
        ────────────────────────────────────────────────────────────────────────────────────────────────
        Every page of every database and every log file, read after the run.

                               Rate
        File            Size  MiB/s        Good   Blank  Damaged  Result
        ─────────  ─────────  ─────  ──────────  ──────  ───────  ──────
        priv1.edb  130.2 GiB    182  17,000,000  59,970        0  pass

        Test log
        ────────────────────────────────────────────────────────────────────────────────────────────────
        2008-09-24 10:48:51  spindle 0.1.0: testing begins
        2008-09-24 13:06:51  testing ends

        Sources
        ────────────────────────────────────────────────────────────────────────────────────────────────
        White papers that limits and profiles are taken from; other sources are named where they are
        used.

        HP Continuous Access  HP: Replicating Microsoft Exchange 2003 using StorageWorks Continuous Access and the
                              Enterprise Virtual Array
        HP EVA8000            HP: best practices for Exchange Server 2003 on the StorageWorks 8000 Enterprise Virtual
                              Array
        AMI 2008              AMI: StorTrends IP-SAN 3200i storage solution for Microsoft Exchange Server (ESRP), 2008
        IBM 2008              IBM: Exchange Server 2007 with System Storage N series and SnapManager for Exchange,
                              2008
        Dell 2010             Dell: Sizing and Best Practices for Deploying Microsoft Exchange Server 2010 on VMware
                              vSphere and Dell EqualLogic Storage, 2010

        spindle 0.1.0 · seed 1
    "#]].assert_eq(&text::render(&document, TextOptions { width: 110, colour: false }));
}

#[test]
fn rate_latency_and_distribution_are_charted_with_their_limits() {
    let results = ami_2008();
    let document = document(&results, &RunVerdict::of(&results).unwrap());
    let mut said = String::new();
    for block in document.sections.iter().flat_map(|section| &section.blocks) {
        let (title, lines, limits): (_, Vec<&str>, _) = match block {
            Block::LineChart(chart) => {
                (&chart.title, chart.series.iter().map(|line| line.name()).collect(), &chart.limits)
            }
            Block::Distribution(chart) => {
                (&chart.title, chart.series.iter().map(|line| line.name()).collect(), &chart.limits)
            }
            _ => continue,
        };
        let limits: Vec<String> =
            limits.iter().map(|limit| format!("{} {:?}", limit.label, limit.at.get().unwrap())).collect();
        said += &format!("{title}: {} [{}]\n", lines.join(", "), limits.join(", "));
    }
    expect![[r#"
        Database IOPS: reads, writes, both [target 270.0]
        Database latency: reads, writes [limit of the average read 20.0]
        Latency distribution: database reads, database writes, log writes []
        Latency that 99 % kept, over time: database reads, database writes, log writes []
        Outstanding I/O: database reads, database writes, log writes []
        Log write latency: log writes [limit of the average 10.0]
    "#]]
    .assert_eq(&said);
}

#[test]
fn the_document_of_a_failed_run_starts_with_the_reason() {
    let mut results = ami_2008();
    results.failure_counts.content = 1;
    let text = "priv1.edb: message 3 of mailbox 1 is gone: it was committed and never deleted".to_owned();
    results.failures.push(RunFailure { kind: FailureKind::Content, text });
    results.interrupted = true;
    let (document, findings) = (document(&results, &RunVerdict::of(&results).unwrap()), findings(&results));
    expect![[r#"
        331 database IOPS, but beyond a limit: Wrong or missing records 1, at most 0.
        error: Wrong or missing records 1, at most 0.
        error: wrong record: priv1.edb: message 3 of mailbox 1 is gone: it was committed and never deleted
        warning: The run was ended early: the report is partial, and only 1 of 2 files was verified.
        note: The profile's figures for page_bytes, compressible_percent, log_file_bytes, checkpoint_depth_bytes, scan_batch_bytes, lazy_commit_delay_ms are recalled or assumed, not read in a source."#]].assert_eq(&format!("{}\n{}", document.verdict.unwrap().headline, findings.join("\n")));
}

#[test]
fn a_single_thread_is_singular_and_thousands_are_grouped() {
    let mut results = ami_2008();
    (results.plan.load, results.pacing) = (LoadPlan::Threads { per_group: 1 }, None);
    results.volumes.iter_mut().for_each(|volume| volume.tallies.read.count *= 100);
    let one = document(&results, &RunVerdict::of(&results).unwrap());
    assert_eq!(one.subtitle, "exchange-2007, 1 database of 129 GiB, 1 thread a group");
    let headline = one.verdict.unwrap().headline;
    assert!(headline.contains(": 17,165 database IOPS within every limit"), "{headline}");
    results.plan.load = LoadPlan::Mailboxes { count: 16_000, iops_each: 1.5 };
    let many = document(&results, &RunVerdict::of(&results).unwrap());
    assert_eq!(many.subtitle, "exchange-2007, 1 database of 129 GiB, 16,000 mailboxes at 1.5 IOPS");
    let headline = many.verdict.unwrap().headline;
    assert!(headline.starts_with("17,165 database IOPS, but beyond a limit"), "{headline}");
}

#[test]
fn databases_that_grew_to_their_limit_are_one_note() {
    let mut results = ami_2008();
    let full = |results: &RunResults| -> Vec<String> {
        findings(results).into_iter().filter(|finding| finding.contains(" grew to ")).collect()
    };
    let then = "from then on as many records were deleted as inserted.";
    results.databases = vec![results.databases[0].clone(); 3];
    results.plan.databases_per_group = 3;
    assert_eq!(full(&results), [""; 0]);
    results.databases[1].became_full = true;
    assert_eq!(full(&results), [format!("note: priv1.edb grew to its limit; {then}")]);
    results.databases[2].became_full = true;
    assert_eq!(full(&results), [format!("note: priv1.edb and 1 more database grew to their limit; {then}")]);
    results.databases[0].became_full = true;
    assert_eq!(full(&results), [format!("note: All 3 databases grew to their limit; {then}")]);
}

#[test]
fn unjudged_blank_pages_are_reported() {
    let mut results = ami_2008();
    results.verified[0].blank_unjudged = true;
    let told = "59,970 blank pages of priv1.edb not judged: after an unclean shutdown";
    let warned =
        findings(&results).into_iter().any(|finding| finding.starts_with(&format!("warning: {told}")));
    assert!(warned, "{:?}", findings(&results));
}
