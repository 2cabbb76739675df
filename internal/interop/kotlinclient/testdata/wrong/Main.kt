suspend fun wrong(contract: talk.Contract) {
    contract.ask(talk.Export("this is no Ask"))
}
