package run

import "testing"

func TestOutcomesAreJudged(t *testing.T) {
	const columns = "kubectl get nodes -o custom-columns=A:.a,B:.b"
	for _, c := range []struct {
		command string
		left    outcome
		row     exception
		wrong   bool
	}{
		{command: "a"},
		{command: "a", left: outcome{status: 1}, wrong: true},
		{command: "a", left: outcome{status: 2}, row: exception{statuses: []int{1, 2}}},
		{command: "a", left: outcome{status: 3}, row: exception{statuses: []int{1, 2}}, wrong: true},
		{command: "a", left: outcome{errors: "No resources found in default namespace.\n"}, wrong: true},
		{command: "a", left: outcome{errors: "No resources found\n"}, row: exception{empty: true}},
		{command: "a", left: outcome{errors: "Warning: unknown field \"spec.arg\"\n"}, wrong: true},
		{command: "a", left: outcome{status: 1, errors: "error: no kubelet\n"}, row: exception{fails: "no kubelet"}},
		{command: "a", left: outcome{status: 1, errors: "error: unknown flag\n"}, row: exception{fails: "no kubelet"}, wrong: true},
		{command: "a", row: exception{fails: "no kubelet"}, wrong: true},
		{command: columns, left: outcome{out: "A    B\n1    2\n1    <none>\n"}},
		{command: columns, left: outcome{out: "A    B\n1    <none>\n1    <none>\n"}, wrong: true},
		{command: columns, left: outcome{out: "A    B\n1\n"}, wrong: true},
		{command: columns, left: outcome{out: "A    B\n"}, wrong: true},
	} {
		if problem := wrong(c.command, c.left, c.row); (problem != "") != c.wrong {
			t.Errorf("%+v: %q", c, problem)
		}
	}
}

func TestWhatIsNotRunIsJudged(t *testing.T) {
	for _, c := range []struct {
		command string
		wrong   bool
	}{
		{"helm install underlay deploy/chart --set config.network=a --set ccm.replicas=1 --values deploy/values/metal.yaml", false},
		{"helm install underlay deploy/chart --set config.networks=a", true},
		{"helm install underlay deploy/chart --values deploy/values/wood.yaml", true},
		{"docker build --target ccm .", false},
		{"docker build --target ccms .", true},
		{"kubectl -n kube-system patch daemonset underlay-agent -p '[{\"path\":\"/spec/template\"}]'", true},
		{"curl http://127.0.0.1:10266/readyz", false},
		{"curl http://127.0.0.1:10266/readyz/now", true},
		{`kubectl get nodes -o custom-columns='A:.status.conditions[?(@.type=="NetworkUnavailable")].reason'`, false},
		{`kubectl get nodes -o custom-columns='A:.status.conditions[?(@.type=="underlay.dev/PodCIDRAllocated")].reason'`, true},
	} {
		e := exceptionOf(exceptions(), c.command)
		if e == nil || e.check == nil {
			t.Errorf("%s: nobody looks at it", c.command)
			continue
		}
		if err := e.check(c.command); (err != nil) != c.wrong {
			t.Errorf("%s: %v", c.command, err)
		}
	}
}

// TestRowsAreReached: a row that stands behind a more general one is never found.
func TestRowsAreReached(t *testing.T) {
	for _, e := range exceptions() {
		if found := exceptionOf(exceptions(), e.command); found.command != e.command {
			t.Errorf("the row of %q stands behind that of %q", e.command, found.command)
		}
		if e.why == "" {
			t.Errorf("the row of %q has no reason", e.command)
		}
	}
}
