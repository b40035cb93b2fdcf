package archtest

import (
	"strings"
	"testing"
)

// TestTable tests the table itself with invented imports: each kind of pattern and row.
func TestTable(t *testing.T) {
	const m = modulePath + "/"
	for _, test := range []struct {
		from, to        string
		inTest, refused bool
	}{
		{from: "ipam", to: "net/netip"},
		{from: "ipam", to: bart},
		{from: "ipam", to: "log/slog", refused: true},
		{from: "ipam", to: m + "routes", refused: true},
		{from: "ipam", to: m + "ipam/controller", refused: true}, // a parent its child
		{from: "ipam", to: "math/rand/v2", inTest: true},
		{from: "ipam", to: "k8s.io/api/core/v1", inTest: true, refused: true},
		{from: "routes", to: "net", refused: true},
		{from: "ipam/controller", to: m + "ipam"},
		{from: "ipam/controller", to: m + "lb", refused: true},
		{from: "ipam/controller", to: m + "internal/config", refused: true},
		{from: "ipam/controller", to: m + "routes", refused: true},
		{from: "internal/hetzner", to: "github.com/hetznercloud/hcloud-go/v2/hcloud"},
		{from: "internal/cloud", to: "github.com/hetznercloud/hcloud-go/v2/hcloud", refused: true},
		{from: "internal/cloud", to: "github.com/hetznercloud/hcloud-go/v2/hcloud", inTest: true},
		{from: "routes/agent", to: "github.com/vishvananda/netlink", refused: true},
		{from: "cmd/underlay-ccm", to: m + "test/testenv/controlplane", refused: true},
		{from: "cmd/underlay-ccm", to: m + "test/testenv/controlplane", inTest: true},
		{from: "test/demo", to: m + "hcloudsim"},
	} {
		p := Package{Path: m + test.from}
		if test.inTest {
			p.TestImports = []string{test.to, p.Path}
		} else {
			p.Imports = []string{test.to}
		}
		found := CheckImports([]Package{p})
		if refused := len(found) > 0; refused != test.refused {
			t.Errorf("%s to %s, in a test: %t: refused: %q", test.from, test.to, test.inTest, found)
		}
	}
}

func TestEveryRuleHasAReason(t *testing.T) {
	for i, r := range rules() {
		if r.reason == "" || len(r.importer) == 0 || len(r.allowed)+len(r.forbidden) == 0 {
			t.Errorf("row %d of the table is incomplete: %+v", i, r)
		}
	}
}

func TestNamesAndDocs(t *testing.T) {
	packages := []Package{
		{Path: modulePath + "/good", Doc: "Package good is.", Code: 1},
		{Path: modulePath + "/cmd/tool", Doc: "Command tool does.", Code: 1},
		{Path: modulePath + "/onlytests"},
		{Path: modulePath + "/x/utils/y", Doc: "Package y is.", Code: 1},
		{Path: modulePath + "/utilities", Code: 1},
		{Path: modulePath + "/wrong", Doc: "Something else.", Code: 1},
	}
	expect(t, CheckNames(packages), `x/utils/y: a folder named "utils"`)
	expect(t, CheckDocs(packages), "utilities: no package doc", "wrong: no package doc")
}

func TestFileHabits(t *testing.T) {
	const head = "// Package p is.\npackage p\n\n"
	long := head + strings.Repeat("\n", maxLines)
	wide := strings.Repeat("x", maxColumns)
	tests := map[string]struct {
		file    string
		content string
		long    map[string]string
		want    []string
	}{
		"short":               {file: "a.go", content: head},
		"long":                {file: "a.go", content: long, want: []string{"a.go: 403 lines"}},
		"long, excused":       {file: "a.go", content: long, long: map[string]string{"a.go": "a table"}},
		"long for code only":  {file: "a_test.go", content: long},
		"too long for a test": {file: "a_test.go", content: long + strings.Repeat("\n", 100), want: []string{"a_test.go: 503 lines"}},
		"excused for nothing": {file: "a.go", content: head, long: map[string]string{"a.go": "a table"}, want: []string{"needs no exception"}},
		"wide":                {file: "a.go", content: head + "// " + wide, want: []string{"a.go:4: more than 100 columns"}},
		"wide, a text":        {file: "a.go", content: head + "const t = \"" + wide + "\""},
		"wide, a long text":   {file: "a.go", content: head + "const t = `\n" + wide + "`"},
		"wide, a test":        {file: "a_test.go", content: head + "// " + wide, want: []string{"a_test.go:4: more than 100 columns"}},
		"init":                {file: "a.go", content: head + "func init() {}", want: []string{"a.go:4:1: init()"}},
		"a method init":       {file: "a.go", content: head + "type T int\nfunc (T) init() {}"},
		"skip with a reason":  {file: "a_test.go", content: head + `func f() { t.Skip("no root") }`},
		"skip without":        {file: "a_test.go", content: head + "func f() { t.Skip() }", want: []string{"a_test.go:4:12: a test is skipped"}},
		"skip now":            {file: "a_test.go", content: head + "func f() { t.SkipNow() }", want: []string{"a test is skipped"}},
		"sleep":               {file: "a_test.go", content: head + "func f() { time.Sleep(1) }", want: []string{"a_test.go:4:12: time.Sleep"}},
		"sleep with a reason": {file: "a_test.go", content: head + "func f() {\n\t// The lease has to run out.\n\ttime.Sleep(1)\n}"},
		"sleep in a bubble":   {file: "a_test.go", content: head + "import \"testing/synctest\"\nfunc f() { time.Sleep(1) }"},
		"sleep outside tests": {file: "a.go", content: head + "func f() { time.Sleep(1) }"},
		"default transport":   {file: "a.go", content: head + "var t = http.DefaultTransport", want: []string{"a.go:4:9: http.DefaultTransport sends no pings"}},
		"default client":      {file: "a.go", content: head + "var c = http.DefaultClient", want: []string{"http.DefaultClient sends no pings"}},
		"default in a test":   {file: "a_test.go", content: head + "var t = http.DefaultTransport"},
		"client":              {file: "cmd/a/b.go", content: head + "var c = kubernetes.NewForConfig", want: []string{"cmd/a/b.go: a client of the API server that waits for ever"}},
		"client, deadlines":   {file: "cmd/a/b.go", content: head + "var c, d = kubernetes.NewForConfig, kube.WithDeadline"},
		"client in a test":    {file: "cmd/a/b_test.go", content: head + "var c = kubernetes.NewForConfig"},
		"generated":           {file: "a.go", content: "// Code generated by x. DO NOT EDIT.\n\n" + head + "func init() {}"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			found, err := checkFiles([]File{{Name: test.file, Content: []byte(test.content)}}, test.long)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, found, test.want...)
		})
	}
}

// expect requires as many lines as there are wants, each containing its want.
func expect(t *testing.T, got []string, wants ...string) {
	t.Helper()
	if len(got) != len(wants) {
		t.Errorf("found %q, want %q", got, wants)
		return
	}
	for i, want := range wants {
		if !strings.Contains(got[i], want) {
			t.Errorf("found %q, want %q in it", got[i], want)
		}
	}
}
