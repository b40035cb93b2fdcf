package alerts

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Labels that Prometheus adds to scraped series: of the leading replica, of the standby, and of an
// agent.
const (
	leader  = `instance="10.0.0.2:10258",pod="underlay-ccm-a"`
	standby = `instance="10.0.0.3:10258",pod="underlay-ccm-b"`
	agent   = `instance="10.0.0.4:10266",node="node-1"`
)

// minutes is the length of the series, with a sample each minute: longer than the duration of any
// alert.
const minutes = 120

// seriesOf parses lines with a series and its values, "absent" if it doesn't exist.
func seriesOf(lines string) map[string]string {
	labels := strings.NewReplacer("$leader", leader, "$standby", standby, "$agent", agent)
	out := map[string]string{}
	for line := range strings.SplitSeq(lines, "\n") {
		at := strings.LastIndex(line, " ")
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		name := labels.Replace(line[:at])
		if out[name] = fmt.Sprintf("%sx%d", line[at+1:], minutes); line[at+1:] == "absent" {
			out[name] = ""
		}
	}
	return out
}

func testdata(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// trouble is a state in which an alert fires.
type trouble struct {
	alert   string
	differs map[string]string
	after   int
	says    string
}

// troubles parses paragraphs of "ALERT after MINUTES says TEXT" and the series that differ.
func troubles(t *testing.T) (all []trouble) {
	t.Helper()
	for paragraph := range strings.SplitSeq(testdata(t, "troubles.txt"), "\n\n") {
		head, lines, _ := strings.Cut(paragraph, "\n")
		words := regexp.MustCompile(`^(\w+) after (\d+) says (.+)$`).FindStringSubmatch(head)
		if strings.HasPrefix(head, "#") {
			continue
		} else if words == nil {
			t.Fatalf("%q is no head of a trouble", head)
		}
		after, err := strconv.Atoi(words[2])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, trouble{words[1], seriesOf(lines), after, words[3]})
	}
	return all
}

func text(series map[string]string) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(series)) {
		if series[name] != "" {
			fmt.Fprintf(&out, "%s %s\n", name, series[name])
		}
	}
	return out.String()
}

// TestAClusterThatIsWell: nothing fires, however long the state lasts.
func TestAClusterThatIsWell(t *testing.T) {
	if fired := firing(t, text(seriesOf(testdata(t, "well.txt"))), minutes*time.Minute); len(fired) > 0 {
		t.Errorf("fired: %s", strings.Join(fired, "\n"))
	}
}

// TestTroubles: each trouble makes its alert fire and no other, and not before the alert's
// duration.
func TestTroubles(t *testing.T) {
	wait := patience(t)
	for _, trouble := range troubles(t) {
		t.Run(trouble.alert, func(t *testing.T) {
			series := seriesOf(testdata(t, "well.txt"))
			for name, values := range trouble.differs {
				if _, known := series[name]; !known && !strings.Contains(name, "unanswered") {
					t.Fatalf("%s is no series of a cluster that is well", name)
				}
				series[name] = values
			}
			fired := firing(t, text(series), time.Duration(trouble.after)*time.Minute)
			if len(fired) != 1 || !strings.HasPrefix(fired[0], trouble.alert+": ") || !strings.Contains(fired[0], trouble.says) {
				t.Errorf("fired after %d minutes: %q, want %s that says %q", trouble.after, fired, trouble.alert, trouble.says)
			}
			if early := firing(t, text(series), wait[trouble.alert]-interval); len(early) > 0 {
				t.Errorf("fired before %s had passed: %q", wait[trouble.alert], early)
			}
		})
	}
}

// TestEveryAlertIsTried checks that each alert has a trouble.
func TestEveryAlertIsTried(t *testing.T) {
	tried := troubles(t)
	for name := range patience(t) {
		if !slices.ContainsFunc(tried, func(tr trouble) bool { return tr.alert == name }) {
			t.Errorf("%s is never made to fire", name)
		}
	}
}
