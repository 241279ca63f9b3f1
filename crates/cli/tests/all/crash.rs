//! The explorer as a command: figures, violations, replays.
#![allow(clippy::unwrap_used, reason = "these are tests, though not all in test functions")]

use crate::support::Place;

#[test]
fn crashes_are_explored_and_counted_the_same_by_any_number_of_threads() {
    // Fails if a state is judged or not depending on the machine, or nothing is judged at all; or
    // if the figures that shall be kept are not.
    let place = Place::new();
    let run = |threads| {
        let arguments = ["crash", "--form", "8/8", "--states", "1000", "--threads", threads];
        let mut figures = place.json(&[&arguments[..], &["--record", "kept.toml"]].concat());
        for timed in ["seconds", "states_per_second"] {
            assert!(figures.as_object_mut().unwrap().remove(timed).is_some());
        }
        figures
    };
    let figures = run("1");
    assert_eq!((&figures["violations"], &figures["model"]), (&0.into(), &"adr".into()));
    assert!(figures["states"].as_u64() > Some(1000), "{figures}");
    assert_eq!(figures, run("2"));
    let kept: toml::Table = String::from_utf8(place.read("kept.toml")).unwrap().parse().unwrap();
    let kept = &kept["wophi"]["crash-adr"];
    let sum = ["states", "ended_processes", "nested_states"].map(|name| figures[name].as_i64());
    for (name, figure) in [
        ("states", sum.into_iter().sum()),
        ("nested", figures["nested_states"].as_i64()),
        ("points", figures["crash_points"].as_i64()),
        ("operations", figures["operations"].as_i64()),
    ] {
        assert_eq!(kept[name].as_integer(), figure, "{name}: {kept:?}");
    }
    // Of all forms there is one line, too.
    let all = ["crash", "--states", "1", "--operations", "1", "--depth", "1", "--model", "eadr"];
    assert!(place.json(&all)["states"].as_u64() > Some(0));
    // And a line for each of them, where people read it.
    let text = String::from_utf8(place.ok(&all)).unwrap();
    for form in ["8/8", "16/16", "variable"] {
        assert!(text.contains(&format!("form {form}: ")), "{form}: {text}");
    }
    // A text has the same figures.
    let text = place.ok(&["crash", "--form", "8/8", "--states", "1000"]);
    let text = String::from_utf8(text).unwrap();
    for (figure, what) in [
        ("states", "states at"),
        ("crash_points", "crash points"),
        ("nested_states", "of nested crashes"),
        ("ended_processes", "ended processes"),
        ("seeds", "seeds"),
        ("operations", "operations"),
        ("complete_points", "points complete"),
        ("sampled_points", "sampled"),
    ] {
        assert!(text.contains(&format!(" {} {what}", figures[figure])), "{figure}: {text}");
    }
}

#[test]
fn every_engine_is_judged_with_other_settings() {
    // Fails if a variant names a setting that its engine has not, or if nothing is judged.
    let place = Place::new();
    for engine in everhash_store::engines() {
        let brief =
            ["--variants", "--form", "8/8", "--states", "1", "--operations", "2", "--depth", "1"];
        let told = place.ok(&[&["crash", "--engine", engine.name][..], &brief].concat());
        let told = String::from_utf8(told).unwrap();
        assert!(told.lines().count() >= 2, "{told}");
        let is_sound = |line: &str| line.contains(" --set ") && line.contains(": 0 violations; ");
        assert!(told.lines().all(is_sound), "{told}");
    }
}

#[test]
fn what_is_left_out_is_noticed_and_replayed() {
    // Fails if the judge passes over a missing flush, or its replay shows something else.
    let place = Place::new();
    let site = "wophi/insert/token";
    let sites = String::from_utf8(place.ok(&["crash", "--list-sites"])).unwrap();
    assert!(sites.lines().any(|line| line == site), "{sites}");
    let run = place.run(&["crash", "--form", "8/8", "--drop", site]);
    let told = String::from_utf8(run.stdout).unwrap();
    assert_eq!((run.status, &run.stderr[..]), (1, ""), "{told}");
    assert!(told.ends_with(": 1 violation\n") && told.contains(site), "{told}");
    let (_, replay) = told.split_once("replay: everhash ").unwrap();
    let (arguments, state) = replay.lines().next().unwrap().split_once(" --replay ").unwrap();
    let mut arguments: Vec<_> = arguments.split(' ').collect();
    arguments.extend(["--replay", state.trim_matches('\'')]);
    let run = place.run(&arguments);
    assert_eq!(run.status, 1, "{run:?}");
    let failure = String::from_utf8(run.stdout).unwrap();
    assert!(told.contains(failure.trim()), "{failure}");
    // With other settings the place is another.
    let run = place.run(&["crash", "--form", "8/8", "--drop", site, "--set", "initial_buckets=2"]);
    let set = String::from_utf8(run.stdout).unwrap();
    assert!(set.contains(" --depth 2 --set initial_buckets=2 --drop "), "{set}");
    // A program gets the same command, with the place where the engine was crashed.
    let asked = ["crash", "--form", "8/8", "--drop", "wophi/insert/token:drop-fence", "--json"];
    let run = place.run(&asked);
    let told: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((run.status, &told["violations"]), (1, &1.into()), "{told}");
    assert_eq!(told["mutant"], "wophi/insert/token:drop-fence");
    let command = "everhash crash --engine wophi --form 8/8 --model adr --depth 2 --drop \
                   wophi/insert/token:drop-fence --replay '";
    assert!(told["replay"].as_str().unwrap().starts_with(command), "{told}");
    // The engine as it is has nothing wrong there.
    let dropped = arguments.iter().position(|argument| *argument == "--drop").unwrap();
    arguments.drain(dropped..dropped + 2);
    place.ok(&arguments);
}

#[test]
fn the_last_seeds_are_refused() {
    // Fails if a run that begins with them looks for ever for seeds that there are not.
    let place = Place::new();
    let run = |seed: u64| {
        let few = ["--form", "8/8", "--operations", "4", "--states", "10"];
        place.run(&[&["crash", "--seed", &seed.to_string()][..], &few].concat())
    };
    let greatest = u64::MAX - (1 << 48);
    for seed in [u64::MAX, greatest + 1] {
        run(seed).fails(2, &["--seed <SEED>", &greatest.to_string()]);
    }
    run(greatest).ok();
}

#[test]
fn what_does_not_exist_is_refused() {
    // Fails if a misspelt site, form or model were judged to have no violation.
    let place = Place::new();
    place.run(&["crash", "--drop", "wophi/nowhere"]).fails(2, &["'wophi/nowhere'", "--list-sites"]);
    let unknown = ["crash", "--drop", "wophi/insert/token:drop-everything"];
    place.run(&unknown).fails(2, &["drop-everything"]);
    place.run(&["crash", "--form", "7/7"]).fails(2, &["7/7"]);
    place.run(&["crash", "--set", "nothing=1", "--states", "1"]).fails(2, &["'nothing'"]);
    place.run(&["crash", "--form", "8/8", "--replay", "put:1:1"]).fails(2, &["copy all of it"]);
    assert_eq!(place.run(&["crash", "--model", "none"]).status, 2);
    // Fails if a device is read to an end that it has not.
    let record = ["crash", "--form", "8/8", "--states", "10", "--record"];
    for no_file in ["/dev/full", "."] {
        let run = place.run(&[&record[..], &[no_file]].concat());
        run.fails(2, &["--record <FILE>: ", "no regular file"]);
    }
    // Fails if a text that is none counts as a violation.
    for text in ["put 1 / 5:", "put:1:1 / nothing"] {
        place.run(&["crash", "--form", "8/8", "--replay", text]).fails(2, &[]);
    }
    for mutant in ["wophi/insert/token", "wophi/nowhere:drop-flush", "wophi/insert/token:drop-all"]
    {
        let replay = ["crash", "--form", "8/8", "--replay", "put:1:1 / 5:", "--drop", mutant];
        place.run(&replay).fails(2, &[]);
    }
    // Fails if a replay of another program counts as a violation of this one.
    let stale = ["crash", "--form", "8/8", "--replay", "put:1:1 / 999999:killed"];
    place.run(&stale).fails(5, &["there is no crash point 999999:killed"]);
}

#[test]
fn seeds_follow_each_other_until_there_are_enough_states() {
    // Fails if the same workloads were judged again and their states counted as new ones.
    let place = Place::new();
    let figures = |seed: &str, states: u64| {
        let few = ["crash", "--form", "8/8", "--operations", "2", "--depth", "1", "--seed", seed];
        let states = states.to_string();
        place.json(&[&few[..], &["--model", "eadr", "--states", &states]].concat())
    };
    let number = |figures: &serde_json::Value, name: &str| figures[name].as_u64().unwrap();
    let all = |figures: &serde_json::Value| {
        number(figures, "states") + number(figures, "ended_processes")
    };
    let (first, second) = (figures("0", 1), figures("8", 1));
    let both = figures("0", all(&first) + 1);
    assert_eq!(number(&both, "seeds"), 16);
    assert_ne!(all(&first), all(&second));
    assert_eq!(all(&both), all(&first) + all(&second));
}
