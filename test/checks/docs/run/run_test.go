package run

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/test/checks/docs/markdown"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// before are commands that put the cluster into the state that a page assumes.
func before() map[string]string {
	return map[string]string{
		"README.md":                             "kubectl -n kube-system delete secret hcloud",
		"deploy/chart/README.md":                "kubectl -n kube-system delete secret hcloud",
		"docs/how-to/several-control-planes.md": "kubectl -n kube-system delete secret hcloud",
		"docs/tutorial/first-cluster.md":        "kubectl -n kube-system delete secret hcloud; kubectl delete service/web deployment/web",
	}
}

// deleted are the Nodes that a page deletes.
func deleted() map[string]string {
	return map[string]string{"docs/how-to/single-to-dual-stack.md": "spare", "docs/how-to/remove.md": "spare-2", "docs/tutorial/dedicated-server.md": "spare-3"}
}

// placeholders replace words in capitals, as readers do, and paths and addresses by those of this
// cluster.
func placeholders(t *testing.T, w *world, page string) *strings.Replacer {
	node := cmp.Or(deleted()[page], "worker-1")
	pairs := []string{
		"NAMESPACE:", "NAMESPACE:", "NODE:", "NODE:", "NAME:", "NAME:", // heads of columns
		"NAMESPACE/NAME", "default/web", "service NAMESPACE/NAME", "service default/web", "service NAME", "service web", "NAME", node, "NODE", node,
		"IPV4-ADDRESS", "10.244.0.2", "IPV6-ADDRESS", "fd00:10:244::2",
		"HCLOUD_TOKEN=…", "HCLOUD_TOKEN=" + cluster.Token,
		"https://127.0.0.1:6443", w.ControlPlane.URL(),
	}
	// The addresses of the page's own simulated cloud.
	for _, address := range []string{"127.0.0.1:8470", "127.0.0.1:8471", "127.0.0.1:8472"} {
		free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer free.Close() // so that each port differs
		pairs = append(pairs, address, free.Addr().String())
	}
	return strings.NewReplacer(pairs...)
}

// TestCommands runs the commands of the documents.
func TestCommands(t *testing.T) {
	all, err := markdown.ReadTree(root)
	if err != nil {
		t.Fatal(err)
	}
	delete(all, "CHANGELOG.md") // it describes past versions
	w := startWorld(t)
	table := exceptions()
	needed := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		places := all[name].Commands()
		if len(places) == 0 {
			continue
		}
		t.Run(strings.ReplaceAll(name, "/", "."), func(t *testing.T) {
			p := w.open(t, all[name])
			for _, lines := range places {
				commands, err := markdown.Whole(t.Context(), lines)
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range commands {
					e := exceptionOf(table, c)
					if e != nil {
						needed[e.command] = true
					}
					p.follow(t, c, e)
				}
			}
		})
	}
	for _, e := range table {
		if !needed[e.command] {
			t.Errorf("no document has a command that begins with %q: delete its row", e.command)
		}
	}
	if t.Failed() {
		t.Log(w.logs())
	}
}

// page is a document whose commands are run.
type page struct {
	*session
	world *world
	fill  *strings.Replacer
}

// open prepares the assumptions of a document.
func (w *world) open(t *testing.T, d markdown.Document) *page {
	t.Helper()
	w.restore(t)
	dir := w.folder(t)
	p := &page{
		session: startSession(t, dir, w.environment(dir)), world: w, fill: placeholders(t, w, d.Path),
	}
	// Only the page of the simulator has files that commands name, in this order.
	files := []string{"seed.yaml", "dedicated.yaml"}
	for _, b := range d.Blocks {
		if b.Language == "yaml" && d.Path == "docs/how-to/hcloud-sim.md" {
			write(t, filepath.Join(dir, files[0]), b.Content)
			files = files[1:]
		}
	}
	if c := before()[d.Path]; c != "" {
		p.expect(t, c, exception{})
	}
	return p
}

// follow runs one command, or its exception's replacement.
func (p *page) follow(t *testing.T, command string, row *exception) {
	t.Helper()
	e := exception{}
	if row != nil {
		e = *row
	}
	if e.check != nil {
		if err := e.check(command); err != nil {
			t.Errorf("%s\n%v", command, err)
		}
	}
	if !row.runs() {
		t.Logf("not run: %s (%s)", command, e.why)
		return
	}
	if strings.HasPrefix(command, "curl ") {
		if _, err := exec.LookPath("curl"); err != nil {
			t.Logf("not run: %s (there is no curl)", command)
			return
		}
	}
	p.expect(t, p.fill.Replace(strings.NewReplacer(e.instead...).Replace(command)), e)
	if len(e.also) > 0 {
		p.expect(t, p.fill.Replace(strings.NewReplacer(e.also...).Replace(command)), exception{})
	}
}

// looks matches a command that changes nothing: running it once is enough.
var looks = regexp.MustCompile(`^(?:underlayctl|kubectl (?:-n \S+ )?(?:get|describe|logs)) `)

// expect runs a command in the page's shell and checks its result. It retries for a while, as
// readers would, until an expected object exists.
func (p *page) expect(t *testing.T, command string, e exception) {
	t.Helper()
	if e.background {
		p.serve(t, command)
		return
	}
	if p.world.seen[command] && looks.MatchString(command) {
		return
	}
	p.world.seen[command] = true
	began, problem, left := time.Now(), "", outcome{}
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			var err error
			left, err = p.run(t.Context(), command)
			problem = wrong(command, left, e)
			// A command that must fail may have another error at first: a pod that was just deleted.
			return problem == "" || left.status != 0 && e.fails == "", err
		})
	t.Logf("%.1f s: %s", time.Since(began).Seconds(), command)
	switch {
	case err != nil && problem == "":
		t.Fatalf("%s\n%v", command, err)
	case problem != "":
		t.Errorf("%s\n%s: %s", command, problem, left)
	}
}

// serve starts a simulated cloud that replaces the previous one, and waits until it listens.
func (p *page) serve(t *testing.T, command string) {
	t.Helper()
	if _, err := p.run(t.Context(), "kill $! 2>/dev/null; wait; "+command+" 2>/dev/null &"); err != nil {
		t.Fatal(err)
	}
	for _, address := range regexp.MustCompile(`listen[= ](127\.0\.0\.1:\d+)`).FindAllStringSubmatch(command, -1) {
		err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true,
			func(ctx context.Context) (bool, error) {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", address[1])
				if err == nil {
					conn.Close()
				}
				return err == nil, nil
			})
		if err != nil {
			t.Fatalf("%s\ndoes not listen: %v", command, err)
		}
	}
}

// wrong returns the problem of a command's result; empty: none.
func wrong(command string, o outcome, e exception) string {
	switch {
	case e.fails != "" && (o.status == 0 || !strings.Contains(o.errors, e.fails)):
		return fmt.Sprintf("it should fail with %q", e.fails)
	case e.fails != "":
		return ""
	case o.status != 0 && !slices.Contains(e.statuses, o.status):
		return "it fails"
	case !e.empty && strings.Contains(o.errors, "No resources found"):
		return "it finds nothing"
	case strings.Contains(o.errors, "unknown field"):
		return "it sets a field that nobody knows" // the API server accepts it
	case strings.Contains(command, "custom-columns="):
		return bare(o.out)
	}
	return ""
}

var gap = regexp.MustCompile(` {2,}`)

// bare finds a column in which no row has a value: its path matches no field.
func bare(table string) string {
	lines := strings.Split(strings.TrimSpace(table), "\n")
	heads := gap.Split(lines[0], -1)
	for i, head := range heads {
		if !slices.ContainsFunc(lines[1:], func(line string) bool {
			cells := gap.Split(line, -1)
			return i < len(cells) && cmp.Or(cells[i], "<none>") != "<none>"
		}) {
			return "no row has a value in column " + head
		}
	}
	return ""
}
