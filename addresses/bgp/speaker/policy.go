package speaker

import (
	"fmt"

	"github.com/osrg/gobgp/v4/api"

	announce "github.com/underlay-ccm/underlay/addresses/bgp"
)

const (
	// allPeers is GoBGP's name of the global routing table.
	allPeers    = "global"
	onlyOwn     = "only-own"
	communities = "communities"
)

// policies accept only the node's own announcements, and add the communities of each peer.
func policies(d announce.Desired) *api.SetPoliciesRequest {
	mark := &api.Policy{Name: communities}
	request := &api.SetPoliciesRequest{Policies: []*api.Policy{
		{Name: onlyOwn, Statements: []*api.Statement{{
			Name:       onlyOwn,
			Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
			Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
		}}},
		mark,
	}}
	for _, p := range d.Peers {
		if len(p.Communities) == 0 {
			continue
		}
		to := p.Address.String()
		request.DefinedSets = append(request.DefinedSets, &api.DefinedSet{
			DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR, Name: to,
			List: []string{announce.Host(p.Address).String()},
		})
		mark.Statements = append(mark.Statements, &api.Statement{
			Name:       to,
			Conditions: &api.Conditions{NeighborSet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: to}},
			Actions:    marks(p.Communities),
		})
	}
	return request
}

func marks(all []uint32) *api.Actions {
	add := &api.CommunityAction{Type: api.CommunityAction_TYPE_ADD}
	for _, c := range all {
		add.Communities = append(add.Communities, fmt.Sprintf("%d:%d", c>>16, c&0xffff))
	}
	return &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT, Community: add}
}

func assignments() []*api.PolicyAssignment {
	return []*api.PolicyAssignment{
		{
			Name: allPeers, Direction: api.PolicyDirection_POLICY_DIRECTION_IMPORT,
			Policies: []*api.Policy{{Name: onlyOwn}}, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
		},
		{
			Name: allPeers, Direction: api.PolicyDirection_POLICY_DIRECTION_EXPORT,
			Policies: []*api.Policy{{Name: communities}}, DefaultAction: api.RouteAction_ROUTE_ACTION_ACCEPT,
		},
	}
}
