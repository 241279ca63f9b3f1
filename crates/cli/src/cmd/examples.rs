//! The examples at the end of each help text. A test runs them, from the first to the last, in one
//! directory: each shows what it says.
//!
//! A line may say the status with which it ends, unless that is 0.

pub const IMPORT: &str = "\
Examples:
  printf 'tree\\toak\\nbird\\towl\\n' | everhash import - demo.ehdb
  everhash export demo.ehdb pairs.jsonl && everhash import pairs.jsonl demo.ehdb
  everhash import pairs.jsonl copy.ehdb --engine wophi --expect 1000
  everhash import pairs.jsonl copy.ehdb --table sessions --expires-after 1800";

pub const EXPORT: &str = "\
Examples:
  everhash export demo.ehdb | wc -l
  everhash export demo.ehdb pairs.tsv --sort";

pub const GET: &str = "\
Examples:
  everhash get demo.ehdb tree
  everhash get demo.ehdb tree --length
  everhash get demo.ehdb tree --range 0..2
  everhash get demo.ehdb flower    # status 1";

pub const PUT: &str = "\
Examples:
  everhash put demo.ehdb flower rose
  everhash put demo.ehdb picture --stdin < pairs.tsv
  everhash put demo.ehdb flower tulip --if-value rose
  everhash put demo.ehdb flower daisy --print-old
  everhash put demo.ehdb flower lily --if-absent    # status 1
  everhash put demo.ehdb 8f3a ann --table sessions --expires-after 1800";

pub const REMOVE: &str = "\
Examples:
  everhash remove demo.ehdb picture
  everhash remove demo.ehdb flower --print-old
  everhash remove demo.ehdb flower    # status 1";

pub const CONTAINS: &str = "\
Examples:
  everhash contains demo.ehdb tree && echo yes
  everhash contains demo.ehdb flower    # status 1";

pub const KEYS: &str = "\
Examples:
  everhash keys demo.ehdb | sort";

pub const COUNT: &str = "\
Examples:
  everhash count demo.ehdb";

pub const TABLES: &str = "\
Examples:
  everhash put demo.ehdb owl night --table birds
  everhash get demo.ehdb owl --table birds
  everhash tables demo.ehdb
  everhash tables demo.ehdb --drop birds";

pub const ADD: &str = "\
Examples:
  everhash add demo.ehdb visits
  everhash add demo.ehdb visits 41
  everhash add demo.ehdb visits -2
  everhash add demo.ehdb tree    # status 1";

pub const CLEAR: &str = "\
Examples:
  everhash clear copy.ehdb";

pub const CREATE: &str = "\
Examples:
  everhash create new.ehdb
  everhash create counters.ehdb --form 8/8 --expect 100000
  everhash create wophi.ehdb --engine wophi --hash xxh3";

pub const STATS: &str = "\
Examples:
  everhash stats demo.ehdb
  everhash stats demo.ehdb --json
  everhash stats demo.ehdb --prometheus > demo.prom
  everhash stats demo.ehdb --watch=0.1 --count 3";

pub const TOP: &str = "\
Examples:
  everhash import pairs.tsv watched.ehdb --metrics && everhash top watched.ehdb --count 1
  everhash top watched.ehdb.prom --every 0.1 --count 3 | cat";

pub const COMPACT: &str = "\
Examples:
  everhash compact demo.ehdb
  everhash compact copy.ehdb --truncate";

pub const CHECK: &str = "\
Examples:
  everhash check demo.ehdb";

pub const REPAIR: &str = "\
Examples:
  everhash repair demo.ehdb
  everhash repair demo.ehdb --into salvaged.ehdb";

pub const BACKUP: &str = "\
Examples:
  everhash backup demo.ehdb backup.ehdb";

pub const ENGINES: &str = "\
Examples:
  everhash engines
  everhash engines --names";

pub const BENCH: &str = "\
Examples:
  everhash bench --items 1000 --threads 1 --rounds 1
  everhash bench --engine walsh --items 1000 --threads 1 --rounds 1 --json
  everhash bench --instructions --engine wophi --items 1000";

pub const SCALE: &str = "\
Examples:
  everhash scale scale.ehdb --items 10000 --gets 1000";

pub const CRASH: &str = "\
Examples:
  everhash crash --engine wophi --form 8/8 --states 20 --operations 5
  everhash crash --engine wophi --list-sites";

#[cfg(feature = "judges")]
pub const RACE: &str = "\
Examples:
  everhash race --engine wophi --form 8/8 --schedules 200";

#[cfg(feature = "judges")]
pub const FUZZ: &str = "\
Examples:
  everhash fuzz --engine wophi --form 8/8 --executions 200";

pub const TORTURE: &str = "\
Examples:
  everhash torture --engine wophi --kills 2";

pub const DEVICE: &str = "\
Examples:
  everhash device list
  everhash device show cxl-dram --json";

pub const COMPLETIONS: &str = "\
Examples:
  everhash completions bash > everhash.bash
  everhash completions zsh > _everhash";

pub const MAN: &str = "\
Examples:
  mkdir man1 && everhash man man1";
