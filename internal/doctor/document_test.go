package doctor

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/internal/survey"
)

var update = flag.Bool("update", false, "write the generated document instead of comparing it")

const documentPath = "../../docs/reference/doctor.md"

// TestDocument keeps docs/reference/doctor.md equal to the table. To write it
// anew: go test ./internal/doctor -run TestDocument -update.
func TestDocument(t *testing.T) {
	want := rendered()
	if *update {
		if err := os.WriteFile(documentPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(documentPath)
	if err != nil || string(got) != want {
		t.Errorf("the document differs from the table (%v); run: go test ./internal/doctor -run TestDocument -update", err)
	}
}

// Names are what people filter by, so they are unique and of one form, and every
// row says all that the reference shows.
func TestTable(t *testing.T) {
	form := regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	seen := map[string]bool{}
	for _, c := range checks() {
		if !form.MatchString(c.name) || seen[c.name] {
			t.Errorf("the name %q is of another form, or there twice", c.name)
		}
		seen[c.name] = true
		if c.looks == "" || c.remedy == "" || c.find == nil || len(c.severities) == 0 || slices.Contains(c.severities, Info) {
			t.Errorf("check %s is incomplete: %+v", c.name, c)
		}
		if got := c.run(newCluster(&survey.Snapshot{})); c.concerns != nil && (len(got) != 1 || got[0].Severity != Info) {
			t.Errorf("check %s asks whether it concerns the cluster without having seen anything: %+v", c.name, got)
		}
	}
}

const intro = `<!-- Generated from the table in internal/doctor by "go test ./internal/doctor -run TestDocument -update". Do not edit. -->

# What doctor checks

` + "`underlayctl doctor`" + ` looks once at the cluster, the configuration and the cloud, reads only, and prints what is wrong with what to do about it.

- **error**: something doesn't work, or is about to harm others.
- **warning**: it works, and will not for long, or not in every case.
- **info**: "not checked", with what could not be seen or told yet, and why. Nothing that was not seen counts as healthy.

States that pass by themselves are not reported: a Node has 5 minutes to get its provider ID, podCIDRs and agent, a condition has to hold for 2 minutes, a new load balancer has 5 minutes for its first health checks, and a Node whose server was deleted has 5 minutes to be deleted, with its route, from when it isn't Ready any more.

The columns: what a check looks at and for what; the severities that its findings can have, the usual one first; what to do (a finding may say it more exactly); and what has to be seen for it.

| check | looks at | severity | what to do | needs |
|---|---|---|---|---|
`

func rendered() string {
	var b strings.Builder
	b.WriteString(intro)
	for _, c := range checks() {
		var severities, needs []string
		for _, s := range c.severities {
			severities = append(severities, string(s))
		}
		for p := survey.Part(1); p <= survey.PartActions; p <<= 1 {
			if (c.needs|c.first())&p != 0 {
				needs = append(needs, p.String())
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", c.name, cell(c.looks), strings.Join(severities, ", "), cell(placed(c.remedy, "kube-system")), strings.Join(needs, ", "))
	}
	return b.String()
}

// cell makes a sentence, unless it begins with a command.
func cell(text string) string {
	if strings.HasPrefix(text, "kubectl ") {
		return text + "."
	}
	return strings.ReplaceAll(strings.ToUpper(text[:1])+text[1:]+".", "|", "\\|")
}
