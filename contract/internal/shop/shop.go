// Package shop has a type for the tests of package contract whose name another package uses, too.
package shop

// Item is something that is sold.
type Item struct {
	SKU string `json:"sku"`
}
