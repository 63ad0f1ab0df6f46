-- The price of a house from a table that a spreadsheet saved.
data       { "csv", train = "houses.csv", target = "price", drop = { "id" }, category = { "city" }, standardize = true,
             split = { eval = 30 } }
batch      (10)
accumulate (3)
model      { linear "fc1" { 32 }, relu {}, linear "fc2" { 1 } }
loss       "mse"
optimizer  { "adamw", lr = 1e-1 }
train      { epochs = 40 }
eval       { every = "epoch" }
