//! A load as a picture: latencies by percentile, and grants in each second.
//!
//! Rule    lines are labelled and differ in their dashes, so colours carry no meaning.

use hdrhistogram::Histogram;

use super::report::{Report, Times, grouped, shown};
use super::svg::Svg;

impl Report {
    /// As SVG, for light and dark pages.
    pub fn svg(&self) -> String {
        let mut svg = Svg::new(WIDTH, HEIGHT, &format!("Load on {}", self.title()), STYLE);
        svg.rectangle("paper", [0.0, 0.0], [WIDTH, HEIGHT]);
        svg.text("", [LEFT, 22.0], "start", &self.title());
        percentiles(&mut svg, self);
        throughput(&mut svg, &self.figures.per_second, self.elapsed.as_secs_f64());
        svg.finish() + "\n"
    }
}

/// Latency over percentile. Both axes are logarithmic: the right one of `1 / (1 - quantile)`.
fn percentiles(svg: &mut Svg, report: &Report) {
    let found = Times::ALL.map(|times| (times, report.times(times)));
    let lowest = found.iter().filter(|(_, times)| !times.is_empty()).map(|(_, times)| times.min()).min();
    let highest = found.iter().map(|(_, times)| times.max()).max().unwrap_or(0);
    let bottom = decade(lowest.unwrap_or(1_000).max(100)).floor();
    let top = decade(highest.max(10_000)).ceil().max(bottom + 1.0);
    let y = |nanos: f64| {
        let share = (nanos.log10() - bottom) / (top - bottom);
        CURVES_TOP + CURVES_HEIGHT * (1.0 - share.clamp(0.0, 1.0))
    };
    svg.text("small", [LEFT, CURVES_TOP - 8.0], "start", "latency by percentile");
    for power in bottom as i32..=top as i32 {
        let nanos = 10_f64.powi(power);
        svg.line("grid", [LEFT, y(nanos)], [LEFT + PLOT_WIDTH, y(nanos)]);
        svg.text("small", [LEFT - 6.0, y(nanos) + 4.0], "end", &shown(nanos as u64));
    }
    for (at, name) in ["0", "90 %", "99 %", "99.9 %", "99.99 %"].into_iter().enumerate() {
        let x = LEFT + at as f64 / NINES * PLOT_WIDTH;
        svg.line("grid", [x, CURVES_TOP], [x, CURVES_TOP + CURVES_HEIGHT]);
        svg.text("small", [x, CURVES_TOP + CURVES_HEIGHT + 16.0], "middle", name);
    }
    for (index, (times, histogram)) in found.into_iter().enumerate() {
        let class = CLASSES[index];
        let legend = LEFT + PLOT_WIDTH + 16.0;
        let line = CURVES_TOP + 14.0 + 22.0 * index as f64;
        svg.line(class, [legend, line], [legend + 26.0, line]);
        svg.text("", [legend + 34.0, line + 4.0], "start", times.name());
        if !histogram.is_empty() {
            svg.put(format_args!("<polyline class=\"{class}\" points=\"{}\"/>\n", curve(histogram, y)));
        }
    }
}

/// The points of a curve, up to the percentile that a hundred values, or one, lie above.
fn curve(times: &Histogram<u64>, y: impl Fn(f64) -> f64) -> String {
    let reached = (times.len() as f64).log10().min(NINES);
    let points = (0..=CURVE_POINTS).map(|point| f64::from(point) / f64::from(CURVE_POINTS) * reached);
    let points = points.map(|nines| {
        let nanos = times.value_at_quantile(1.0 - 10_f64.powf(-nines)).max(1);
        format!("{:.1},{:.1}", LEFT + nines / NINES * PLOT_WIDTH, y(nanos as f64))
    });
    points.collect::<Vec<_>>().join(" ")
}

/// Grants in each second. A last second that was not whole counts as a share of one, and a tenth of it is left out.
fn throughput(svg: &mut Svg, per_second: &[u64], elapsed_secs: f64) {
    let shown = (elapsed_secs - 0.1).ceil().max(1.0) as usize;
    let per_second = &per_second[..per_second.len().min(shown)];
    let rate = |second: usize| {
        let share = (elapsed_secs - second as f64).clamp(0.1, 1.0);
        per_second[second] as f64 / share
    };
    let highest = (0..per_second.len()).map(rate).fold(1.0, f64::max);
    let bottom = RATES_TOP + RATES_HEIGHT;
    svg.text("small", [LEFT, RATES_TOP - 8.0], "start", "locks granted in a second");
    svg.line("grid", [LEFT, RATES_TOP], [LEFT + PLOT_WIDTH, RATES_TOP]);
    svg.line("grid", [LEFT, bottom], [LEFT + PLOT_WIDTH, bottom]);
    svg.text("small", [LEFT - 6.0, RATES_TOP + 4.0], "end", &grouped(highest as u64));
    svg.text("small", [LEFT - 6.0, bottom + 4.0], "end", "0");
    svg.text("small", [LEFT, bottom + 16.0], "middle", "0 s");
    let end = format!("{elapsed_secs:.0} s");
    svg.text("small", [LEFT + PLOT_WIDTH, bottom + 16.0], "middle", &end);
    // A long load is drawn with one point for several seconds.
    let step = per_second.len().div_ceil(RATE_POINTS_MAX).max(1);
    let points = (0..per_second.len()).step_by(step).map(|second| {
        let some = second..(second + step).min(per_second.len());
        let mean = some.clone().map(rate).sum::<f64>() / some.len() as f64;
        let middle = (second as f64 + some.len() as f64 / 2.0).min(elapsed_secs);
        let x = LEFT + middle / elapsed_secs.max(1e-9) * PLOT_WIDTH;
        format!("{x:.1},{:.1}", bottom - mean / highest * RATES_HEIGHT)
    });
    let points = points.collect::<Vec<_>>().join(" ");
    svg.put(format_args!("<polyline class=\"{}\" points=\"{points}\"/>\n", CLASSES[0]));
}

fn decade(nanos: u64) -> f64 {
    (nanos as f64).log10()
}

/// Sizes in pixels.
const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 80.0;
const PLOT_WIDTH: f64 = 600.0;
const CURVES_TOP: f64 = 60.0;
const CURVES_HEIGHT: f64 = 240.0;
const RATES_TOP: f64 = 370.0;
const RATES_HEIGHT: f64 = 110.0;
/// The width in nines: up to 99.99 %.
const NINES: f64 = 4.0;
const CURVE_POINTS: u32 = 200;
const RATE_POINTS_MAX: usize = 600;
const CLASSES: [&str; 4] = ["c0", "c1", "c2", "c3"];

const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#1f2328}.small{font-size:11px;fill:#59636e}.paper{fill:#fff}\
.grid{stroke:#d1d9e0}.c0,.c1,.c2,.c3{fill:none;stroke-width:2}.c0{stroke:#0b66d0}\
.c1{stroke:#8250df;stroke-dasharray:8 3}.c2{stroke:#bf5b04;stroke-dasharray:3 3}.c3{stroke:#1a7f37;stroke-dasharray:10 3 2 3}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.paper{fill:#0d1117}.grid{stroke:#30363d}\
.c0{stroke:#58a6ff}.c1{stroke:#bc8cff}.c2{stroke:#e3883a}.c3{stroke:#3fb950}}";

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::load::figures::{Figures, record};
    use crate::load::plan::{Keys, Node, Plan};
    use redlatch_client::Trust;

    #[test]
    fn a_plot_stays_inside_its_frame_with_any_figures() {
        let node = Node::new("redis://", Trust::default()).unwrap();
        let plan = Arc::new(Plan { keys: Keys::One("<k>&".to_owned()), ..Plan::new(vec![node]) });
        for seconds in [0, 1, 10_000] {
            let mut figures = Figures::new(plan.clients);
            for second in 0..seconds {
                record(&mut figures.acquire, Duration::from_nanos(1 + second * second * 1_000));
                figures.granted(0, Duration::from_secs(second));
            }
            let elapsed = Duration::from_secs(seconds);
            let svg = Report::new(&plan, None, figures, 0, elapsed).svg();
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
            assert!(svg.contains("&lt;k&gt;&amp;") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            for points in svg.split("points=\"").skip(1) {
                let points = points.split('"').next().unwrap();
                for point in points.split(' ').filter(|point| !point.is_empty()) {
                    let (x, y) = point.split_once(',').unwrap();
                    let [x, y] = [x, y].map(|number| number.parse::<f64>().unwrap());
                    assert!((0.0..=WIDTH).contains(&x) && (0.0..=HEIGHT).contains(&y), "{seconds}: {point}");
                }
            }
            assert!(svg.len() < 40_000, "{}", svg.len());
        }
    }
}
