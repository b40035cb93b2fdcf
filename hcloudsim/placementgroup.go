package hcloudsim

import "github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

const (
	kindPlacementGroup = "placement_group"

	placementSpread = "spread"
	// groupMembersMost is the number of servers in a placement group, see
	// https://docs.hetzner.com/cloud/placement-groups/overview.
	groupMembersMost = 10
)

// placementGroup keeps its servers on different hosts. Its members refer to it.
type placementGroup struct{ base }

func placementGroupKind() kind[*placementGroup] {
	return kind[*placementGroup]{
		name: kindPlacementGroup, plural: "placement_groups",
		rows: func(p *project) *table[*placementGroup] { return &p.groups },
		body: func(p *project, g *placementGroup) any { return p.renderPlacementGroup(g) },
		filters: map[string]filter[*placementGroup]{"type": {
			func(*placementGroup) string { return placementSpread }, []string{placementSpread},
		}},
		mayDelete: func(p *project, g *placementGroup) error {
			if members := p.groupMembers(g.id); len(members) > 0 {
				return errRefused("resource_in_use", "placement group contains server %d", members[0])
			}
			return nil
		},
	}
}

func placementGroupOperations() []operation {
	k := placementGroupKind()
	return k.operations(create(k, (*call).createPlacementGroup))
}

func (p *project) renderPlacementGroup(g *placementGroup) schema.PlacementGroup {
	return schema.PlacementGroup{
		ID: g.id, Name: g.name, Labels: cloneLabels(g.labels), Created: g.created,
		Servers: p.groupMembers(g.id), Type: placementSpread,
	}
}

func (p *project) groupMembers(group int64) []int64 {
	return ids(&p.servers, func(s *server) bool { return s.group == group })
}

func (c *call) createPlacementGroup(
	req schema.PlacementGroupCreateRequest,
) (*placementGroup, map[string]any, error) {
	b, err := placementGroupKind().new(c.project, req.Name, req.Labels)
	if err == nil && req.Type != placementSpread {
		err = errInvalid("type", "must be %s", placementSpread)
	}
	if err != nil {
		return nil, nil, err
	}
	g := &placementGroup{c.newBase(b)}
	c.groups.add(g)
	return g, map[string]any{"action": nil}, nil
}

// mayJoin returns an error if a placement group doesn't exist or is full.
func (p *project) mayJoin(group int64) error {
	if _, err := must(&p.groups, kindPlacementGroup, group); err != nil {
		return err
	}
	if len(p.groupMembers(group)) >= groupMembersMost {
		// https://github.com/hetznercloud/terraform-provider-hcloud/issues/1170
		return errRefused("placement_group_member_limit_reached",
			"placement group with ID %d contains already %d servers", group, groupMembersMost)
	}
	return nil
}

func (c *call) addToPlacementGroup(
	s *server, req schema.ServerActionAddToPlacementGroupRequest,
) (change, error) {
	switch {
	case s.status != statusOff:
		return change{}, errRefused("server_not_stopped", "the server is not off")
	case s.group != 0:
		return change{}, errRefused("already_in_placement_group",
			"the server is already in placement group %d", s.group)
	}
	return change{
		command: "add_to_placement_group",
		about:   []ref{s.ref(), {kindPlacementGroup, req.PlacementGroup}},
		finish:  func() { s.group = req.PlacementGroup },
	}, c.mayJoin(req.PlacementGroup)
}

func (c *call) removeFromPlacementGroup(s *server, _ struct{}) (change, error) {
	if s.group == 0 {
		return change{}, errInvalid("placement_group", "the server is in no placement group")
	}
	return change{
		command: "remove_from_placement_group",
		about:   []ref{s.ref(), {kindPlacementGroup, s.group}},
		finish:  func() { s.group = 0 },
	}, nil
}
