package config

import "net/netip"

// AgentConfig is what the agent on each node needs of the configuration.
type AgentConfig struct {
	Families Families
	// Pools are those of the file, or one for each --cluster-cidr; possibly none.
	Pools []Pool
	// Exclude is never handed out of them.
	Exclude []netip.Prefix
	// VSwitch is where dedicated servers are.
	VSwitch VSwitch
	// Addresses are those that nodes hold for Services.
	Addresses Addresses
	// Metal: there is no cloud that vouches for the addresses of Nodes.
	Metal bool
	// Inventory are the addresses of machines that are known beforehand; only
	// with Metal.
	Inventory []netip.Addr
}

// LoadAgent reads the same file as Load, for the agent on a node: without a
// token, without environment variables, and without wanting settings that may
// stand in the controller manager's. A file that is wrong is refused as a whole,
// and warnings are left to Load. clusterCIDR is that flag's value.
func LoadAgent(path, clusterCIDR string, readFile func(string) ([]byte, error)) (AgentConfig, error) {
	l := &loader{
		flags:    Flags{CloudConfig: path, ClusterCIDR: clusterCIDR, ConfigureCloudRoutes: true},
		fileFlag: "--config", getenv: func(string) string { return "" }, readFile: readFile, onNode: true,
	}
	if err := l.load(nil); err != nil {
		return AgentConfig{}, err
	}
	n := AgentConfig{
		Families: l.Families, Pools: l.IPAM.Pools, Exclude: l.IPAM.Exclude,
		VSwitch: l.VSwitch, Addresses: l.Addresses, Metal: l.Provider == Metal,
	}
	if n.Metal {
		for _, m := range l.Inventory {
			n.Inventory = append(n.Inventory, m.Addresses...)
		}
	}
	return n, nil
}
