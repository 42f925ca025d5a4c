//! What the benchmark `served` reads of `redis-benchmark`.

#[path = "../../benches/served/report.rs"]
mod report;

use report::{Measured, medians, read};

const REPORT: &str = "\u{20}\nSET: rps=0.0 (overall: 0.0) avg_msec=-nan\r      \r\
    ====== SET ======\n  20000 requests completed in 0.11 seconds\n  keep alive: 1\n\n\
    Latency by percentile distribution:\n\
    0.000% <= 0.279 milliseconds (cumulative count 16)\n\
    50.000% <= 2.871 milliseconds (cumulative count 10000)\n\
    99.805% <= 10.767 milliseconds (cumulative count 19968)\n\
    99.902% <= 10.783 milliseconds (cumulative count 19984)\n\
    100.000% <= 10.791 milliseconds (cumulative count 20000)\n\n\
    Cumulative distribution of latencies:\n\
    0.000% <= 0.103 milliseconds (cumulative count 0)\n\
    100.000% <= 11.103 milliseconds (cumulative count 20000)\n\n\
    Summary:\n  throughput summary: 181818.19 requests per second\n\
    \u{20} latency summary (msec):\n\
    \u{20}         avg       min       p50       p95       p99       max\n\
    \u{20}       3.637     0.272     2.871     7.423    10.655    10.791\n";

#[test]
fn rate_and_percentiles_of_each_command_are_read() {
    let expected = |command: &str| Measured {
        command: command.into(),
        rate: 181_818.19,
        p50_ms: 2.871,
        p99_ms: 10.655,
        p999_ms: 10.783,
    };
    let both = [REPORT, &REPORT.replace("SET", "GET")].concat();
    assert_eq!(read(&both).unwrap(), [expected("SET"), expected("GET")]);
}

#[test]
fn of_few_requests_the_slowest_is_the_one_of_a_thousand() {
    let few = REPORT.replace("99.902%", "99.890%");
    assert_eq!(read(&few).unwrap()[0].p999_ms, 10.791);
}

#[test]
fn errors_and_reports_of_another_form_are_refused() {
    let failed = REPORT.replace("keep alive: 1", "Error from server: ERR no");
    assert!(read(&failed).unwrap_err().to_string().contains("ERR no"));
    for gone in ["throughput summary", "latency summary", "percentile distribution", "p99 "] {
        assert!(read(&REPORT.replace(gone, "other")).is_err(), "{gone}");
    }
    assert!(read(&REPORT[..REPORT.len() / 2]).is_err());
    assert!(read("").is_err());
}

#[test]
fn medians_are_those_of_each_figure() {
    let run = |rate: f64, p50_ms: f64| Measured {
        command: "GET".into(),
        rate,
        p50_ms,
        p99_ms: 2.0 * p50_ms,
        p999_ms: 3.0 * p50_ms,
    };
    let runs = [run(10.0, 3.0), run(30.0, 1.0), run(20.0, 9.0)];
    assert_eq!(medians(&runs.each_ref()), Some(run(20.0, 3.0)));
    assert_eq!(medians(&[]), None);
}
