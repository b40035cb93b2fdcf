package alerts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// Labels as Prometheus adds them to what it reads: of the replica that leads, of
// the one that waits, and of an agent.
const (
	leader  = `instance="10.0.0.2:10258",pod="underlay-ccm-a"`
	standby = `instance="10.0.0.3:10258",pod="underlay-ccm-b"`
	agent   = `instance="10.0.0.4:10266",node="node-1"`
)

// minutes is how long the series are, with a sample each minute: longer than any
// alert waits.
const minutes = 120

// well is a cluster without trouble: series by their name and labels. Some
// figures are as bad as they may be.
func well() map[string]string {
	constant := func(value any) string { return fmt.Sprintf("%vx%d", value, minutes) }
	return map[string]string{
		`leader_election_master_status{name="cloud-controller-manager",` + leader + `}`:  constant(1),
		`leader_election_master_status{name="cloud-controller-manager",` + standby + `}`: constant(0),

		`underlay_ipam_waiting_nodes{` + leader + `}`:    constant(0),
		`underlay_ipam_second_allocator{` + leader + `}`: constant(0),
		// The first pool is full, the second has room, the third is draining.
		`underlay_ipam_ranges{pool="a",family="ipv4",state="free",` + leader + `}`:      constant(0),
		`underlay_ipam_ranges{pool="a",family="ipv4",state="allocated",` + leader + `}`: constant(16),
		`underlay_ipam_pool_active{pool="a",family="ipv4",` + leader + `}`:              constant(1),
		`underlay_ipam_ranges{pool="b",family="ipv4",state="free",` + leader + `}`:      constant(4),
		`underlay_ipam_ranges{pool="b",family="ipv4",state="allocated",` + leader + `}`: constant(12),
		`underlay_ipam_pool_active{pool="b",family="ipv4",` + leader + `}`:              constant(1),
		`underlay_ipam_ranges{pool="c",family="ipv6",state="free",` + leader + `}`:      constant(0),
		`underlay_ipam_ranges{pool="c",family="ipv6",state="allocated",` + leader + `}`: constant(256),
		`underlay_ipam_pool_active{pool="c",family="ipv6",` + leader + `}`:              constant(0),
		`underlay_ipam_ledger_load_failures_total{` + leader + `}`:                      constant(3),
		// A write that failed now and then.
		`underlay_ipam_ledger_writes_total{outcome="failed",` + leader + `}`:  "0+1x" + fmt.Sprint(minutes),
		`underlay_ipam_ledger_writes_total{outcome="written",` + leader + `}`: "0+1x" + fmt.Sprint(minutes),

		`underlay_route_table_limit{` + leader + `}`:                      constant(100),
		`underlay_route_table_headroom{` + leader + `}`:                   constant(21),
		`underlay_route_table_refused{cause="full",` + leader + `}`:       constant(0),
		`underlay_route_table_refused{cause="obstructed",` + leader + `}`: constant(0),
		`underlay_route_table_refused{cause="outside",` + leader + `}`:    constant(0),
		`underlay_route_table_ambiguous{` + leader + `}`:                  constant(0),
		`underlay_route_table_listed_timestamp_seconds{` + leader + `}`:   "0+60x" + fmt.Sprint(minutes),

		`underlay_cloud_requests_remaining{` + leader + `}`: constant(3000),
		// What the replica that waits was told long ago says nothing.
		`underlay_cloud_requests_remaining{` + standby + `}`:                                                    constant(5),
		`underlay_cloud_requests_total{operation="GET /servers",priority="normal",code="200",` + leader + `}`:   "0+10x" + fmt.Sprint(minutes),
		`underlay_cloud_requests_total{operation="GET /servers",priority="normal",code="503",` + leader + `}`:   "0+1x" + fmt.Sprint(minutes),
		`underlay_cloud_requests_total{operation="POST /networks",priority="urgent",code="423",` + leader + `}`: "0+9x" + fmt.Sprint(minutes),
		`underlay_robot_requests_unavailable{` + leader + `}`:                                                   constant(0),
		`underlay_robot_requests_unavailable{` + standby + `}`:                                                  constant(0),
		`underlay_robot_requests_credentials_refused{` + leader + `}`:                                           constant(0),
		`underlay_robot_requests_credentials_refused{` + standby + `}`:                                          constant(0),
		`underlay_vswitch_unreached_nodes{cause="failed",` + leader + `}`:                                       constant(0),
		`underlay_vswitch_unreached_nodes{cause="missing",` + leader + `}`:                                      constant(0),
		`underlay_lb_syncs_total{result="done",` + leader + `}`:                                                 "0+5x" + fmt.Sprint(minutes),
		`underlay_lb_syncs_total{result="failed",` + leader + `}`:                                               constant(7),
		`underlay_lb_orphaned_load_balancers{` + leader + `}`:                                                   constant(0),

		// A small pool is in use as a whole, and a large one as far as it may be.
		`underlay_addresses_pool_size{pool="a",family="ipv4",` + leader + `}`:   constant(4),
		`underlay_addresses_pool_used{pool="a",family="ipv4",` + leader + `}`:   constant(4),
		`underlay_addresses_pool_size{pool="b",family="ipv4",` + leader + `}`:   constant(20),
		`underlay_addresses_pool_used{pool="b",family="ipv4",` + leader + `}`:   constant(18),
		`underlay_addresses_services_waiting{` + leader + `}`:                   constant(0),
		`underlay_addresses_unheld{` + leader + `}`:                             constant(0),
		`underlay_addresses_in_use{` + leader + `}`:                             constant(0),
		`underlay_addresses_ledger_damaged{` + leader + `}`:                     constant(0),
		`underlay_addresses_moves_total{reason="node-draining",` + leader + `}`: "0+1x" + fmt.Sprint(minutes),
		// New Services are no trouble, however many.
		`underlay_addresses_moves_total{reason="assigned",` + leader + `}`:              "0+9x" + fmt.Sprint(minutes),
		`underlay_addresses_routing_failures_total{mover="floating-ip",` + leader + `}`: constant(7),
		`underlay_agent_address_routers_down{` + agent + `}`:                            constant(0),
		`underlay_agent_address_doubt{` + agent + `}`:                                   constant(0),

		`up{job="kube-system/underlay-agent",` + agent + `}`:            constant(1),
		`underlay_agent_ready{` + agent + `}`:                           constant(1),
		`underlay_agent_unreachable_peers{` + agent + `}`:               constant(0),
		`underlay_agent_repairs_total{part="routes",` + agent + `}`:     "0+0.1x" + fmt.Sprint(minutes),
		`up{job="kube-system/kube-proxy",instance="10.0.0.4:10249"}`:    constant(0),
		`leader_election_master_status{name="kube-controller-manager"}`: constant(0),
	}
}

// trouble is what makes an alert fire: series that differ from those of a
// cluster that is well, after how many minutes, and what the alert has to say.
type trouble struct {
	alert   string
	differs map[string]string // an empty value: the series isn't there
	after   int
	says    string
}

func troubles() []trouble {
	always := func(value any) string { return fmt.Sprintf("%vx%d", value, minutes) }
	growing := func(step any) string { return fmt.Sprintf("0+%vx%d", step, minutes) }
	leading := `leader_election_master_status{name="cloud-controller-manager",` + leader + `}`
	of := func(name, labels string) string { return name + "{" + labels + "," + leader + "}" }
	plain := func(name string) string { return name + "{" + leader + "}" }
	written := of("underlay_ipam_ledger_writes_total", `outcome="written"`)
	return []trouble{
		{"UnderlayControllerAbsent", map[string]string{leading: always(0)}, 5, "no replica"},
		{"UnderlayControllerAbsent", map[string]string{leading: ""}, 5, "no replica"},
		{"UnderlayNodesWithoutPodCIDRs", map[string]string{plain("underlay_ipam_waiting_nodes"): always(3)}, 15, "3 Nodes"},
		{"UnderlayPoolsNearlyFull", map[string]string{
			of("underlay_ipam_ranges", `pool="b",family="ipv4",state="free"`):      always(1),
			of("underlay_ipam_ranges", `pool="b",family="ipv4",state="allocated"`): always(15),
		}, 15, "96.88% of the ipv4"},
		{"UnderlayPoolsExhausted", map[string]string{
			of("underlay_ipam_ranges", `pool="b",family="ipv4",state="free"`): always(0),
		}, 5, "0 ipv4 node prefixes"},
		{"UnderlaySecondAllocator", map[string]string{plain("underlay_ipam_second_allocator"): always(1)}, 1, "hands out none"},
		{"UnderlayLedgerUnusable", map[string]string{written: always(8)}, 10, "10 attempts"},
		{"UnderlayLedgerUnusable", map[string]string{
			of("underlay_ipam_ledger_writes_total", `outcome="failed"`): "", written: "",
			plain("underlay_ipam_ledger_load_failures_total"): growing(6),
		}, 10, "60 attempts"},
		{"UnderlayRouteTableNearlyFull", map[string]string{plain("underlay_route_table_headroom"): always(19)}, 15, "81% of the routes"},
		{"UnderlayRouteTableFull", map[string]string{of("underlay_route_table_refused", `cause="full"`): always(2)}, 2, "2 routes"},
		{"UnderlayRoutesRefused", map[string]string{of("underlay_route_table_refused", `cause="outside"`): always(1)}, 10, "they are outside"},
		{"UnderlayRoutesRefused", map[string]string{of("underlay_route_table_refused", `cause="obstructed"`): always(1)}, 10, "they are obstructed"},
		{"UnderlayRoutesAmbiguous", map[string]string{plain("underlay_route_table_ambiguous"): always(4)}, 15, "4 routes"},
		{"UnderlayRouteTableUnread", map[string]string{plain("underlay_route_table_listed_timestamp_seconds"): always(0)}, 16, "16m 0s ago"},
		{"UnderlayCloudBudgetLow", map[string]string{plain("underlay_cloud_requests_remaining"): always(299)}, 10, "299 requests"},
		{"UnderlayCloudFailing", map[string]string{
			of("underlay_cloud_requests_total", `operation="GET /servers",priority="normal",code="200"`):        always(20),
			of("underlay_cloud_requests_total", `operation="GET /servers",priority="normal",code="unanswered"`): growing(9),
		}, 22, "52.63% of the requests"},
		{"UnderlayRobotFailing", map[string]string{plain("underlay_robot_requests_unavailable"): always(1)}, 30, "not answered for 30 minutes"},
		{"UnderlayRobotCredentialsRefused", map[string]string{plain("underlay_robot_requests_credentials_refused"): always(1)}, 5, "refuses the credentials"},
		{"UnderlayVSwitchMemberFailed", map[string]string{of("underlay_vswitch_unreached_nodes", `cause="failed"`): always(1)}, 10, "1 Nodes of dedicated servers are not reached over the vSwitch: their membership is failed"},
		{"UnderlayVSwitchMemberFailed", map[string]string{of("underlay_vswitch_unreached_nodes", `cause="missing"`): always(2)}, 10, "2 Nodes of dedicated servers are not reached over the vSwitch: their membership is missing"},
		{"UnderlayLoadBalancersFailing", map[string]string{of("underlay_lb_syncs_total", `result="failed"`): growing(0.2)}, 40, "6 reconciliations"},
		{"UnderlayLoadBalancersOrphaned", map[string]string{plain("underlay_lb_orphaned_load_balancers"): always(1)}, 60, "1 load balancers"},
		{"UnderlayAddressesWaiting", map[string]string{plain("underlay_addresses_services_waiting"): always(2)}, 10, "2 Services"},
		{"UnderlayAddressPoolsNearlyFull", map[string]string{of("underlay_addresses_pool_used", `pool="b",family="ipv4"`): always(19)}, 15, "95% of the ipv4 addresses of pool b"},
		{"UnderlayAddressesNotHeld", map[string]string{plain("underlay_addresses_unheld"): always(1)}, 2, "1 addresses"},
		{"UnderlayAddressesInUse", map[string]string{plain("underlay_addresses_in_use"): always(1)}, 2, "1 addresses"},
		{"UnderlayAddressLedgerDamaged", map[string]string{plain("underlay_addresses_ledger_damaged"): always(1)}, 2, "none is handed out"},
		{"UnderlayAddressesMoveOften", map[string]string{of("underlay_addresses_moves_total", `reason="node-draining"`): growing(2)}, 75, "120 times"},
		{"UnderlayAddressRoutingFailing", map[string]string{of("underlay_addresses_routing_failures_total", `mover="floating-ip"`): growing(0.2)}, 40, "6 attempts to lead an address (floating-ip)"},
		{"UnderlayAddressRoutersDown", map[string]string{`underlay_agent_address_routers_down{` + agent + `}`: always(2)}, 5, "node-1 has no BGP session with 2 routers"},
		{"UnderlayAddressDoubt", map[string]string{`underlay_agent_address_doubt{` + agent + `}`: always(1)}, 5, "agent of node-1"},
		{"UnderlayAgentDown", map[string]string{`up{job="kube-system/underlay-agent",` + agent + `}`: always(0)}, 10, "agent of node-1"},
		{"UnderlayAgentNotReady", map[string]string{`underlay_agent_ready{` + agent + `}`: always(0)}, 10, "agent of node-1"},
		{"UnderlayPeersUnreachable", map[string]string{`underlay_agent_unreachable_peers{` + agent + `}`: always(2)}, 10, "node-1 can't reach the pods of 2"},
		{"UnderlayRepairsRepeated", map[string]string{`underlay_agent_repairs_total{part="routes",` + agent + `}`: growing(1)}, 45, "30 things of routes"},
	}
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

// TestAClusterThatIsWell: nothing fires, however long.
func TestAClusterThatIsWell(t *testing.T) {
	if fired := firing(t, text(well()), minutes*time.Minute); len(fired) > 0 {
		t.Errorf("fired: %s", strings.Join(fired, "\n"))
	}
}

// TestTroubles: each trouble makes its alert fire and no other, and not before
// it has lasted as long as the alert waits.
func TestTroubles(t *testing.T) {
	wait := patience(t)
	for _, trouble := range troubles() {
		t.Run(trouble.alert, func(t *testing.T) {
			series := well()
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

// TestEveryAlertIsTried keeps the table whole.
func TestEveryAlertIsTried(t *testing.T) {
	for name := range patience(t) {
		if !slices.ContainsFunc(troubles(), func(tr trouble) bool { return tr.alert == name }) {
			t.Errorf("%s is never made to fire", name)
		}
	}
}
