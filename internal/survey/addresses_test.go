package survey_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
)

const web = "uid-web"

// moment is the time of these tests' Snapshots.
func moment() time.Time { return time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC) }

// held is a cluster of three nodes and one Service with 192.0.2.17, which node-1 holds; ledger, if
// it isn't empty, is the stored one instead.
func held(t *testing.T, ledger string, reports map[string]addresses.Report) *survey.Snapshot {
	t.Helper()
	pool := config.AddressPool{Pool: addresses.Pool{Name: "segment"}, Mover: addresses.Layer2}
	for _, text := range []string{"192.0.2.16-192.0.2.19", "2001:db8::/64"} {
		r, err := addresses.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		pool.Ranges = append(pool.Ranges, r)
	}
	if ledger == "" {
		ledger = `{"version":1,"addresses":[{"address":"192.0.2.17","node":"node-1","epoch":3,"services":[` + share("web", web) + `]}]}`
	}
	class := "underlay.dev/address"
	s := &survey.Snapshot{
		Taken: moment(), Parts: survey.Everything,
		Config: config.Config{
			Provider: config.Metal, Addresses: config.Addresses{Pools: []config.AddressPool{pool}},
		},
		AddressLedger: &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				ManagedFields: []metav1.ManagedFieldsEntry{
					{Time: &metav1.Time{Time: moment().Add(-time.Hour)}},
				},
			},
			Data: map[string]string{"ledger": ledger},
		},
		Services: []*corev1.Service{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: types.UID(web), CreationTimestamp: metav1.NewTime(moment().Add(-time.Hour))},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class},
			Status: corev1.ServiceStatus{
				LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.17"}}},
				Conditions:   []metav1.Condition{{Type: "underlay.dev/Accepted", Status: metav1.ConditionTrue, Reason: "Accepted"}},
			},
		}},
	}
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		}
		report, says := reports[name]
		if reports == nil && name == "node-1" {
			report, says = holds(3), true
		}
		if says || reports == nil {
			text, err := report.MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			n.Annotations = map[string]string{"underlay.dev/addresses": string(text)}
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

func share(name, uid string) string {
	return fmt.Sprintf(`{"uid":%q,"namespace":"shop","name":%q}`, uid, name)
}

// holds is the report of a node that holds 192.0.2.17.
func holds(epoch uint64) addresses.Report {
	return addresses.Report{Held: []addresses.Hold{{Address: netip.MustParseAddr("192.0.2.17"), Epoch: epoch}}}
}

// refuses is the report of one that does not.
func refuses(reason addresses.ProblemReason) addresses.Report {
	return addresses.Report{Refused: []addresses.Problem{{Address: netip.MustParseAddr("192.0.2.17"), Reason: reason, By: "02::9", Text: "why not"}}}
}

func TestStatesOfAddresses(t *testing.T) {
	together := `{"version":1,"groups":[["node-1","node-2"]],"addresses":[{"address":"192.0.2.17","group":0,"services":[` + share("web", web) + `]}]}`
	nobody := `{"version":1,"addresses":[{"address":"192.0.2.17","services":[` + share("web", web) + `]}]}`
	says := func(reports ...addresses.Report) map[string]addresses.Report {
		all := map[string]addresses.Report{}
		for i, r := range reports {
			all[fmt.Sprintf("node-%d", i+1)] = r
		}
		return all
	}
	silent := addresses.Report{Silent: []addresses.Endpoint{{Node: "node-1", Port: addresses.ProxyPort}}}
	none := addresses.Report{}
	for name, c := range map[string]struct {
		ledger  string
		reports map[string]addresses.Report
		fresh   bool // the ledger changed just now
		state   string
		notes   string // a part
	}{
		"as it should be":            {state: survey.AddressHeld},
		"nobody says that":           {reports: says(none, none, none), state: survey.AddressNotHeld},
		"the agent has gone":         {reports: map[string]addresses.Report{"node-2": none}, state: survey.AddressNotHeld},
		"a move":                     {reports: says(none, holds(2), none), fresh: true, state: survey.AddressMoving},
		"both, for a moment":         {reports: says(holds(3), holds(2)), fresh: true, state: survey.AddressMoving},
		"both":                       {reports: says(holds(3), holds(2)), state: survey.AddressHeldTwice, notes: "held by node-2 too"},
		"the wrong one":              {reports: says(none, holds(2)), state: survey.AddressNotHeld, notes: "held by node-2 too"},
		"a stranger has it":          {reports: says(refuses(addresses.InUse)), state: survey.AddressRefused, notes: "node-1: AddressInUse by 02::9: why not"},
		"a stranger, just now":       {reports: says(refuses(addresses.InUse)), fresh: true, state: survey.AddressRefused},
		"a stranger beside us":       {reports: says(addresses.Report{Held: holds(3).Held, Refused: refuses(addresses.InUse).Refused}), state: survey.AddressHeld, notes: "AddressInUse"},
		"no holder":                  {ledger: nobody, reports: says(none, refuses(addresses.OffSegment)), state: survey.AddressNoHolder, notes: "node-2: AddressOffSegment"},
		"its watchers hear nothing":  {reports: says(holds(3), silent, silent), state: survey.AddressHeld, notes: "node-1 is silent at :10256"},
		"one watcher hears nothing":  {reports: says(holds(3), silent, none), state: survey.AddressHeld},
		"all announce it":            {ledger: together, reports: says(holds(0), holds(0)), state: survey.AddressHeld},
		"one of two announces it":    {ledger: together, reports: says(holds(0), refuses(addresses.NoRouter)), state: survey.AddressHeld, notes: "node-2: NoRouter by 02::9: why not; 1 of 2 nodes do not announce it: node-2"},
		"no router hears of it":      {ledger: together, reports: says(refuses(addresses.NoRouter), none), state: survey.AddressRefused, notes: "2 of 2 nodes do not announce it"},
		"nobody announces it":        {ledger: together, reports: says(none, none), state: survey.AddressNotHeld, notes: "2 of 2 nodes do not announce it"},
		"nobody announces it as yet": {ledger: together, reports: says(none, none), fresh: true, state: survey.AddressMoving},
	} {
		t.Run(name, func(t *testing.T) {
			s := held(t, c.ledger, c.reports)
			if c.fresh {
				s.AddressLedger.ManagedFields[0].Time.Time = moment().Add(-10 * time.Second)
			}
			all := s.AddressHoldings(s.Addressing())
			if len(all) != 1 {
				t.Fatalf("%+v", all)
			}
			row := all[0]
			notes := strings.Join(row.Notes, "; ")
			if row.State != c.state || !strings.Contains(notes, c.notes) || c.notes == "" && c.state == survey.AddressHeld && notes != "" {
				t.Errorf("%s (%q), want %s (%q)", row.State, notes, c.state, c.notes)
			}
			if row.Pool != "segment" || row.Mover != addresses.Layer2 || !slices.Equal(row.Services, []string{"shop/web"}) {
				t.Errorf("%+v", row)
			}
		})
	}
}

func TestAddressesView(t *testing.T) {
	s := held(t, "", nil)
	waits := s.Services[0].DeepCopy()
	waits.Name, waits.UID, waits.Status = "api", "uid-api", corev1.ServiceStatus{Conditions: []metav1.Condition{{
		Type: "underlay.dev/Accepted", Status: metav1.ConditionFalse, Reason: "AddressPoolExhausted", Message: "no address is free",
	}}}
	cloud := s.Services[0].DeepCopy()
	cloud.Name, cloud.UID, cloud.Spec.LoadBalancerClass = "cloud", "uid-cloud", nil
	s.Services = append(s.Services, waits, cloud)
	s.Nodes[1].Spec.Unschedulable = true
	s.Nodes[2].Annotations["underlay.dev/addresses"] = `{"unfit":"kube-proxy answers 503","routers":[{"name":"edge","established":false,"state":"Active"}]}`
	v, err := survey.AddressesOf(s)
	if err != nil {
		t.Fatal(err)
	}
	if waiting := rows(v, "waiting"); len(waiting) != 1 || waiting[0]["SERVICE"] != "shop/api" || waiting[0]["WHY"] != "AddressPoolExhausted: no address is free" {
		t.Errorf("waiting: %+v", waiting)
	}
	var lines []string
	for _, p := range rows(v, "pools") {
		lines = append(lines, strings.Join([]string{p["FAMILY"], p["RANGES"], p["SIZE"], p["USED"], p["FREE"]}, " "))
	}
	for _, n := range rows(v, "nodes") {
		lines = append(lines, strings.Join([]string{n["NODE"], n["IS TO HOLD"], n["HOLDS"], n["WHY"]}, " "))
	}
	for _, r := range rows(v, "routers") {
		lines = append(lines, r["ROUTER"]+" "+r["NODE"]+" "+r["SESSION"])
	}
	expectTexts(t, "pools, nodes and routers", lines,
		"IPv4 192.0.2.16-192.0.2.19 4 1 3", "IPv6 2001:db8::-2001:db8::ffff:ffff:ffff:ffff 2^64 and more 0 2^64 and more",
		"node-1 1 1 ", "node-2 0 0 it is cordoned", "node-3 0 0 unfit: kube-proxy answers 503", "edge node-3 Active")
	if s.Config.Addresses.Classless = true; !s.WantsAddress(cloud) {
		t.Error("a Service without a class asks for an address where those are served too")
	}
}

func TestAddressesThatCanNotBeShown(t *testing.T) {
	for name, c := range map[string]struct {
		seed func(*survey.Snapshot)
		note string
	}{
		"damaged": {func(s *survey.Snapshot) { s.AddressLedger.Data["ledger"] = "{" }, "kube-system/underlay-addresses) can't be read"},
		"nothing is configured": {func(s *survey.Snapshot) {
			s.Config.Addresses.Pools, s.AddressLedger, s.ConfigFrom = nil, nil, "the file"
		}, "no pool of addresses is configured: set addresses.pools (the file)"},
		"nothing is configured any more": {func(s *survey.Snapshot) { s.Config.Addresses.Pools = nil }, "and the ledger still has 1"},
	} {
		s := held(t, "", nil)
		c.seed(s)
		v, err := survey.AddressesOf(s)
		if err != nil || len(v.Notes) != 1 || !strings.Contains(v.Notes[0], c.note) {
			t.Errorf("%s: %v, %q, want %q", name, err, v.Notes, c.note)
		}
	}
	s := held(t, "", nil)
	s.Parts &^= survey.PartNodes
	s.Nodes = nil
	if v, err := survey.AddressesOf(s); err != nil || rows(v, "addresses")[0]["STATE"] != survey.AddressNotSeen {
		t.Errorf("without Nodes: %+v, %v", v, err)
	}
	s.Parts &^= survey.PartAddresses
	if _, err := survey.AddressesOf(s); err == nil || !strings.Contains(err.Error(), "ledger of addresses") {
		t.Errorf("without the ledger: %v", err)
	}
}

func TestInspectingAddresses(t *testing.T) {
	facts := func(v table.Page) (texts []string) {
		for _, f := range rows(v, "facts") {
			texts = append(texts, f["FACT"]+": "+f["VALUE"])
		}
		return texts
	}
	s := held(t, "", nil)
	s.Nodes[0].Annotations["underlay.dev/addresses"] = `{"held":[{"address":"192.0.2.17","epoch":3}],"routers":[{"name":"edge","established":true,"announced":2}]}`
	v, err := survey.InspectService(s, survey.NameOf(s.Services[0]))
	if err != nil {
		t.Fatal(err)
	}
	expectTexts(t, "the Service", facts(v), "type: LoadBalancer", "published: 192.0.2.17", "address: 192.0.2.17",
		"pool: segment", "mover: layer2", "holder: node-1", "reported by: node-1", "state: held", "epoch: 3")
	if v, err = survey.InspectNode(s, "node-1"); err != nil {
		t.Fatal(err)
	}
	expectTexts(t, "the Node", facts(v)[2:], "address: 192.0.2.17", "services: shop/web", "pool: segment", "mover: layer2",
		"state: held", "epoch: 3", "is to hold: 1", "holds: 1", "refuses: 0", "router: edge", "session: established", "announced: 2")
	s.Nodes[1].Spec.Unschedulable = true
	if v, err = survey.InspectNode(s, "node-2"); err != nil || !slices.Contains(facts(v), "why: it is cordoned") {
		t.Errorf("another Node: %q, %v", facts(v), err)
	}
}

func TestCollectAddresses(t *testing.T) {
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "underlay-addresses"}, Data: map[string]string{"ledger": `{"version":1,"addresses":[{"address":"192.0.2.17","epoch":1}]}`}}
	for name, objects := range map[string][]runtime.Object{"stored": {stored}, "not stored": nil} {
		s, err := survey.Collect(t.Context(), survey.Sources{Client: fake.NewClientset(objects...)},
			survey.Want{Parts: survey.PartAddresses})
		if err != nil || !s.Saw(survey.PartAddresses) {
			t.Fatalf("%s: %v, %v", name, err, s.NotSeen())
		}
		if n := len(s.Addressing().Ledger.Entries()); n != len(objects) {
			t.Errorf("%s: %d entries", name, n)
		}
	}
}

// A state of less than a minute doesn't count as lasting, and one without a time does.
func TestLasting(t *testing.T) {
	silent := addresses.Report{Silent: []addresses.Endpoint{{Node: "node-1", Port: addresses.AgentPort}}}
	s := held(t, "", map[string]addresses.Report{"node-1": holds(3), "node-2": silent, "node-3": silent})
	a := s.Addressing()
	if got := a.Lasting(s.Taken).Silent; len(a.Silent) != 1 || len(got) != 1 {
		t.Errorf("%v, and lasting %v", a.Silent, got)
	}
	at := metav1.NewTime(s.Taken.Add(-30 * time.Second))
	entry := metav1.ManagedFieldsEntry{Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{}}}`)}
	s.Nodes[2].ManagedFields = []metav1.ManagedFieldsEntry{entry}
	if got := s.Addressing().Lasting(s.Taken).Silent; len(got) != 1 {
		t.Errorf("another field of the Node was written, and %v lasts", got)
	}
	entry.FieldsV1 = metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:underlay.dev/addresses":{}}}}`)
	s.Nodes[2].ManagedFields = append(s.Nodes[2].ManagedFields, entry)
	if got := s.Addressing().Lasting(s.Taken).Silent; len(got) != 0 {
		t.Errorf("one of two began to say so just now, and %v lasts", got)
	}
	v, err := survey.AddressesOf(s)
	if err != nil || rows(v, "addresses")[0]["WHY"] != "node-1 is silent at :10267, as its watchers report" {
		t.Errorf("%+v, %v", rows(v, "addresses"), err)
	}
}
