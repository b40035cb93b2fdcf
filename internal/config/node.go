package config

// Node is what the agent on each node needs of the configuration.
type Node struct {
	Families Families
	// Pools are those of the file, or one for each --cluster-cidr; possibly none.
	Pools []Pool
}

// nodeFileFlag is what the agent calls the flag that names the file.
const nodeFileFlag = "--config"

// LoadNode reads the same file as Load, for the agent on a node: without a
// token, without environment variables, and without wanting settings that may
// stand in the controller manager's. A file that is wrong is refused as a whole,
// and warnings are left to Load. clusterCIDR is that flag's value.
func LoadNode(path, clusterCIDR string, readFile func(string) ([]byte, error)) (Node, error) {
	var d draft
	r := &resolver{
		flags:  Flags{CloudConfig: path, ClusterCIDR: clusterCIDR, ConfigureCloudRoutes: true},
		getenv: func(string) string { return "" },
		file:   decoded{rows: reference(&d)}, lists: lists(&d), origins: map[string]given{}, onNode: true,
	}
	r.loadFile(nil, readFile)
	r.resolve()
	loaded := r.validate(&d, readFile)
	for _, problem := range r.problems {
		if problem.Field == fileFlag {
			problem.Field = nodeFileFlag
		}
	}
	if len(r.problems) > 0 {
		r.problems.sort()
		return Node{}, r.problems
	}
	return Node{Families: loaded.Families, Pools: loaded.IPAM.Pools}, nil
}
