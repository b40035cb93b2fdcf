package controlplane

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSummaryHasEachThingOnce(t *testing.T) {
	const ours, agent = "system:serviceaccount:kube-system:underlay-ccm", "underlay-ccm/v1 (linux/amd64)"
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	events := []AuditEvent{
		{Time: at(1), User: ours, UserAgent: agent + "/one", Verb: "patch", Resource: "nodes", Name: "n", Code: 200},
		{Time: at(2), User: ours, UserAgent: agent, Verb: "get", Resource: "nodes", Name: "n", Code: 200},
		{Time: at(3), User: "system:kube-controller-manager", UserAgent: agent, Verb: "get", Resource: "nodes", Name: "n", Code: 200},
		{Time: at(4), User: ours, UserAgent: agent + "/two", Verb: "patch", Resource: "nodes", Name: "n", Code: 200},
		{Time: at(5), User: ours, UserAgent: agent, Verb: "patch", Resource: "nodes", Name: "n", Code: 403, Forbidden: true},
		{Time: at(6), User: ours, UserAgent: "curl/8", Verb: "patch", Resource: "nodes", Name: "n", Code: 200},
	}
	var got []string
	for _, e := range summary(events) {
		got = append(got, e.UserAgent+": "+strings.TrimPrefix(e.String(), ours+" "))
	}
	want := []string{
		"underlay-ccm: get nodes n 200",
		"curl: patch nodes n 200",
		"underlay-ccm: patch nodes n 200",
		"underlay-ccm: patch nodes n 403, which no role grants",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestOutermostIsTheTest(t *testing.T) {
	const here = "test/testenv/controlplane"
	if got, want := outermost(), (function{here, "TestOutermostIsTheTest"}); got != want {
		t.Errorf("called by a test: %v, want %v", got, want)
	}
	t.Run("a subtest", func(t *testing.T) {
		if got, want := outermost(), (function{here, "TestOutermostIsTheTest"}); got != want {
			t.Errorf("called by a subtest: %v, want %v", got, want)
		}
	})
	for name, want := range map[string]function{
		"test/e2e_test.TestX":                 {"test/e2e", "TestX"},
		"cmd/underlayctl_test.(*lab).all":     {"cmd/underlayctl", "(*lab).all"},
		"test/checks/deploy.helper.func2.1":   {"test/checks/deploy", "helper"},
		"test/e2e/packets.TestMain.func1.gow": {"test/e2e/packets", "TestMain"},
	} {
		if got := parseFunction(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

func TestRecordsWantAFolder(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	write(t, folder, "file", "")
	for value, good := range map[string]bool{"": true, folder: true, file: false, folder + "/missing": false, ".": false} {
		t.Setenv(RecordsVariable, value)
		got, err := recordsFolder()
		if good && (err != nil || got != value) ||
			!good && (err == nil || !strings.Contains(err.Error(), RecordsVariable)) {
			t.Errorf("%q: %q, %v; want it accepted: %t", value, got, err, good)
		}
	}
}

func TestADamagedRecordIsNotPassedOver(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "whole.json", `{"Package":"a","Requests":[]}`)
	if records, err := ReadRecords(folder); err != nil || len(records) != 1 || records[0].Package != "a" {
		t.Errorf("a whole one: %v, %v", records, err)
	}
	write(t, folder, "half.json", `{"Package":"a","Req`)
	if _, err := ReadRecords(folder); err == nil || !strings.Contains(err.Error(), "half.json") {
		t.Errorf("half a record: %v, want an error that names it", err)
	}
	if _, err := ReadRecords(folder + "/missing"); err == nil {
		t.Error("a folder that isn't there was accepted")
	}
}
